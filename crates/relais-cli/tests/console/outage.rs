//! The console while relais hangs and while its database is unavailable: no figure is called live.

use std::process::Command;

use super::{TOKENS, VERA, sign_in, signed_in};
use crate::{
    browser::Browser,
    fixture::{LONG, OrderFixture},
};

/// Waits for the state of the connection at the top of the page.
fn until_state(browser: &Browser, state: &str) {
    browser.until(state, || {
        let shown =
            browser.script("return document.querySelector('.live-state')?.dataset.state", &[]);
        (shown == state).then_some(())
    });
}

fn is_dimmed(browser: &Browser) -> bool {
    browser.script("return document.querySelector('main').classList.contains('stale')", &[]) == true
}

fn until_bright(browser: &Browser) {
    until_state(browser, "live");
    browser.until("no banner", || {
        let hidden = browser.script("return document.querySelector('.lost').hidden", &[]);
        (hidden == true && !is_dimmed(browser)).then_some(())
    });
}

/// A process that is stopped until this is dropped.
struct FrozenProcess(u32);

impl FrozenProcess {
    fn of(fixture: &OrderFixture) -> Self {
        let frozen = Self(fixture.pid());
        assert!(frozen.signal("-STOP"));
        frozen
    }

    fn signal(&self, signal: &str) -> bool {
        let status = Command::new("kill").args([signal, &self.0.to_string()]).status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

#[test]
fn a_relais_that_hangs_is_not_called_live() {
    let Some((fixture, browser)) = signed_in(VERA) else { return };
    browser.sees(&["No problems."]);
    until_state(&browser, "live");
    let frozen = FrozenProcess::of(&fixture);
    browser.sees(&["No connection to relais", "did not answer within", "may be out of date"]);
    assert!(is_dimmed(&browser));
    assert!(!browser.text().contains("No problems."), "{}", browser.text());
    until_state(&browser, "off");
    drop(frozen);
    until_bright(&browser);
    browser.sees(&["No problems."]);
}

/// A database of its own in the server of the environment; it is dropped afterwards.
struct OwnDatabase {
    base: String,
    name: String,
}

impl OwnDatabase {
    fn new() -> Option<Self> {
        let Ok(base) = std::env::var("RELAIS_TEST_POSTGRES") else {
            assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_POSTGRES");
            eprintln!("NOT TESTED: the console without its database; set RELAIS_TEST_POSTGRES");
            return None;
        };
        let name = format!("relais_console_{}", uuid::Uuid::new_v4().simple());
        let database = Self { base, name };
        database.execute(&format!("CREATE DATABASE {}", database.name)).unwrap();
        Some(database)
    }

    fn url(&self) -> String {
        let (server, rest) = self.base.rsplit_once('/').unwrap();
        let options = rest.split_once('?').map_or(String::new(), |(_, all)| format!("?{all}"));
        format!("{server}/{}{options}", self.name)
    }

    /// Ends every connection and refuses new ones.
    fn close(&self) {
        self.execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.name)).unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        self.execute(&format!("{end} '{}'", self.name)).unwrap();
    }

    fn reopen(&self) {
        self.execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name)).unwrap();
    }

    fn execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.base, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(sql).await
        })
    }
}

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        if let Err(error) = self.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)) {
            eprintln!("database {} is left behind: {error}", self.name);
        }
    }
}

#[test]
fn an_unavailable_database_is_named_and_nothing_is_called_live() {
    let Some(database) = OwnDatabase::new() else { return };
    let mut fixture = OrderFixture::sqlite();
    let settings = fixture.settings(LONG).replace("sqlite:relais.db", &database.url());
    fixture.settle(&format!("{settings}{TOKENS}"));
    fixture.start();
    fixture.drain();
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    sign_in(&browser, VERA);
    browser.sees(&["No problems."]);
    until_state(&browser, "live");
    database.close();
    browser.until("a banner that names the database", || {
        let banner = browser.script("return document.querySelector('.lost').innerText", &[]);
        let banner = banner.as_str()?.to_lowercase();
        let words = ["database unavailable: postgres", "may be out of date"];
        words.iter().all(|word| banner.contains(word)).then_some(())
    });
    until_state(&browser, "store");
    assert!(is_dimmed(&browser));
    assert!(!browser.text().contains("No problems."), "{}", browser.text());
    // A page that is opened during the outage reports it too, and recovers by itself.
    browser.reload();
    browser.sees(&["Database unavailable"]);
    until_state(&browser, "store");
    database.reopen();
    until_bright(&browser);
    browser.sees(&["No problems.", "Throughput"]);
}
