//! The example under "Try it" on the page of a connector.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{Running, Site};

const HEADING: &str = "## Try it";
/// The event type and the body that the examples expect.
pub(crate) const EVENT_TYPE: &str = "OrderPlaced";
pub(crate) const BODY: &str = r#"{"type":"OrderPlaced","orderId":"7"}"#;

/// The configuration of a page with the addresses and names of a test.
#[derive(Clone)]
pub(crate) struct Example {
    file: String,
}

impl Example {
    /// Reads the configuration of a page. Each text to be replaced must be there.
    pub(crate) fn of_page(page: &str, replaced: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = fs::read_to_string(path).unwrap();
        let section = text.split_once(HEADING).expect(HEADING).1;
        let file = section.split("```toml\n").nth(1).expect("a file").split("```").next().unwrap();
        let example = Self { file: file.to_owned() };
        replaced.iter().fold(example, |example, (from, to)| example.with(from, to))
    }

    /// Replaces a text.
    pub(crate) fn with(&self, from: &str, to: &str) -> Self {
        assert!(self.file.contains(from), "{from}: {}", self.file);
        Self { file: self.file.replace(from, to) }
    }

    /// Runs the program, once `relais check --connect` has found everything.
    pub(crate) fn run(&self) -> (Site, Running) {
        let site = self.site();
        let said = site.relais(&["check", "--connect"]);
        assert_eq!(said.code, 0, "{}: {said:?}", self.file);
        let running = site.run();
        (site, running)
    }

    fn site(&self) -> Site {
        Site::with(&format!("{}\n[admin]\nlisten = \"127.0.0.1:0\"\n", self.file))
    }

    /// Checks that `relais check --connect` names the setting and says all of these.
    pub(crate) fn fails(&self, setting: &str, texts: &[&str]) {
        let said = self.site().relais(&["check", "--connect", "--json"]);
        assert_eq!(said.code, 1, "{said:?}");
        let report: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        let all = report["connections"].as_array().unwrap_or_else(|| panic!("{report:#}"));
        let found = all.iter().find(|tried| tried["setting"] == setting);
        let found = found.unwrap_or_else(|| panic!("no {setting}: {report:#}"));
        assert_eq!(found["ok"], false, "{report:#}");
        let detail = found["detail"].as_str().unwrap();
        for text in texts {
            assert!(detail.contains(text), "{text}: {detail}");
        }
        assert!(!detail.contains("CANARY"), "{detail}");
    }
}

/// Ends the program, and checks that the message was handled once.
pub(crate) fn end(site: &Site, running: Running) {
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    let rows = site.json(&["inbox", "list"]);
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows:#}");
    assert_eq!(rows[0]["status"], "PROCESSED", "{rows:#}");
}

/// Returns the URL of a server; without it the test is left out, except in continuous integration.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}

/// Returns a URL with another password.
pub(crate) fn with_wrong_password(url: &str) -> String {
    let (login, place) = url.rsplit_once('@').unwrap();
    let (user, _) = login.rsplit_once(':').unwrap();
    format!("{user}:CANARY@{place}")
}

/// Returns a runtime for clients inside of synchronous tests.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}
