//! The API does what `/api/openapi.json` says, whatever is sent to it: schemathesis (PyPI) finds nothing.
//!
//! It is installed once into `RELAIS_TEST_CLIENTS_DIR`, or else below the target folder. Where python is
//! missing the test says loudly that it did not run; with `CI` set it fails.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "admin/client.rs"]
#[allow(dead_code)]
mod client;
#[allow(dead_code)]
mod support;

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use client::Client;
use support::{Running, Site, post};

const TOKEN: &str = "a-token-of-the-tests";

/// Least requests of a run; fewer prove nothing.
const CASES_MIN: u64 = 100;
/// Seconds of a run, and of its repetition on a machine that is too busy for [`CASES_MIN`] requests.
const SECONDS: [u64; 2] = [20, 150];

/// One of everything: delivered, dead and undecodable rows, and a process.
const SETTINGS: &str = r#"
[store]
url = "sqlite:relais.db"
[inbox]
unknown_type_wait = "0s"
[admin]
listen = "127.0.0.1:0"
token = "a-token-of-the-tests"
[[source]]
name = "hook"
kind = "http"
listen = "127.0.0.1:0"
source_system = "shop"
[[route]]
on = "Order"
destination = "out"
[[process]]
type = "order"
start = "OrderPlaced"
business_key = "payload:/orderId"
[[process.step]]
name = "payment"
destination = "out"
command = "TakePayment"
payload = '{"order": {{/input/orderId}}}'
completed = "PaymentTaken"
timeout = "10m"
[[destination]]
name = "out"
kind = "log"
path = "out.jsonl"
"#;

#[test]
fn schemathesis_finds_nothing() {
    let Some(schemathesis) = installed() else {
        assert!(env::var_os("CI").is_none(), "schemathesis needs python 3.11 with venv and pip");
        println!(
            "NOT TESTED: the API by schemathesis; install python 3.11 or later with venv and pip"
        );
        return;
    };
    let site = Site::with(SETTINGS);
    let running = site.run();
    let client = filled(&running);
    let settings = settings_file().replace("TOKEN", TOKEN);
    let address = running.logged("admin http://");
    check(&site, &schemathesis, address, &settings);
    // Random ids match no row, so the second run is given ids of rows.
    check(&site, &schemathesis, address, &format!("{settings}{}", known(&client)));
    let said = running.stop();
    assert!(said.code == 0 && !said.err.contains("panicked"), "{said:?}");
}

fn settings_file() -> String {
    fs::read_to_string(here().join("schemathesis.toml")).unwrap()
}

/// Ids of what is there.
fn known(client: &Client) -> String {
    let first = |path: &str, field: &str| client.get(path).ok()["items"][0][field].clone();
    let (letter, row) = (first("/dead-letters?status=all", "id"), first("/serde-errors", "id"));
    let process = first("/processes", "process_id");
    format!(
        "\n[phases]\ncoverage.enabled = false\n[parameters]\n\"path.uuid\" = {letter}\n\"path.row\" = {row}\n\"path.id\" = \"1\"\n\
         \"path.process\" = {process}\n"
    )
}

fn filled(running: &Running) -> Client {
    let hook = running.address("hook");
    for n in 1..=5 {
        for (kind, body) in [
            ("order", r#"{"type":"Order"}"#.to_owned()),
            ("unheard", r#"{"type":"Unheard"}"#.to_owned()),
            ("broken", "{oops".to_owned()),
            ("process", format!(r#"{{"type":"OrderPlaced","orderId":"o-{n}"}}"#)),
        ] {
            let id = format!("{kind}-{n}");
            assert_eq!(post(hook, "/hook", &[("message-id", id.as_str())], &body).0, 202);
        }
    }
    let client = Client::at(running.logged("admin http://"))
        .with("authorization", &format!("Bearer {TOKEN}"));
    let started = Instant::now();
    let count = |path: &str| client.get(path).ok()["items"].as_array().map_or(0, Vec::len);
    let all_there =
        || (count("/dead-letters"), count("/serde-errors"), count("/outbox")) == (5, 5, 10);
    while !all_there() || client.get("/overview").status != 200 {
        assert!(started.elapsed() < Duration::from_secs(60), "the rows come in time");
    }
    client
}

fn check(site: &Site, schemathesis: &Path, address: SocketAddr, settings: &str) {
    let cases = SECONDS.map(|seconds| settings.replace("SECONDS", &seconds.to_string()));
    let enough = |settings: &String| run(site, schemathesis, address, settings) >= CASES_MIN;
    assert!(cases.iter().any(enough), "schemathesis made fewer than {CASES_MIN} requests");
}

/// Runs it once; returns the number of its requests.
fn run(site: &Site, schemathesis: &Path, address: SocketAddr, settings: &str) -> u64 {
    site.write("schemathesis.toml", settings);
    let mut command = Command::new(schemathesis);
    // How long it takes to make up a request says something about the machine, not about the API.
    command.current_dir(site.path("")).args(["run", "--suppress-health-check", "too_slow"]);
    command.arg(format!("http://{address}/api/openapi.json"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_COLOR"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    let output = command.env("NO_COLOR", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "schemathesis found something\n{said}\n{wrong}");
    let cases = said.lines().skip_while(|line| !line.starts_with("Test cases:")).nth(1);
    let number = cases.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("schemathesis printed no number of test cases\n{said}"))
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis")
}

/// The program in a virtual environment of its own; none without python.
fn installed() -> Option<PathBuf> {
    let python = ["python3", "python"].into_iter().find(|name| {
        let asked = Command::new(name).args(["-c", "import ensurepip, venv"]).output();
        asked.is_ok_and(|output| output.status.success())
    })?;
    let chosen = env::var_os("RELAIS_TEST_CLIENTS_DIR").map(PathBuf::from);
    let cache = chosen.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let folder = cache.join("schemathesis");
    fs::create_dir_all(&folder).unwrap();
    let wanted = fs::read_to_string(here().join("requirements.txt")).unwrap();
    let (mark, venv) = (folder.join("installed"), folder.join("venv"));
    if !fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        finish(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv));
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "install", "-q", "-r"]).arg(here().join("requirements.txt"));
        finish(&mut pip);
        fs::write(&mark, wanted).unwrap();
    }
    Some(venv.join("bin/schemathesis"))
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {wrong}");
}
