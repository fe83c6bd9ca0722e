//! `relais demo` proves what it shows, serves its console, and leaves nothing behind.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Shared with tests that use more of it.
#[allow(dead_code)]
mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// Few messages, so that the demo ends soon.
const FEW: [&str; 2] = ["--messages", "80"];

#[test]
fn a_demo_that_ends_by_itself_prints_its_proof() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--once", "--seed", "7"]).args(FEW).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{proof:#}\n{said}");
    assert_eq!((&proof["holds"], &proof["seed"]), (&Value::Bool(true), &Value::from(7)));
    let checks = proof["checks"].as_array().unwrap();
    // Messages could have been lost, and some need an operator.
    for (statement, at_least) in [
        ("orders: acknowledged messages at the target", 80),
        ("Salesforce: contacts", 1),
        ("checkouts: compensation failed, need an operator", 1),
        ("undeliverable messages: dead letters", 3),
        ("messages parked behind a dead letter", 1),
    ] {
        let check = checks.iter().find(|check| check["statement"] == statement);
        let check = check.unwrap_or_else(|| panic!("no check `{statement}`: {proof:#}"));
        assert!(check["found"].as_u64() >= Some(at_least), "{check:#}");
    }
    assert!(is_empty(folder.path()));
}

#[test]
fn a_demo_that_is_looked_at_shows_its_console_and_ends_with_the_proof() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Watched::start(folder.path());
    let console = demo.line("console     http://");
    let console: SocketAddr = console.trim_end_matches('/').parse().unwrap();
    let (status, page) = support::get(console, "/healthz");
    assert_eq!(status, 200, "{page}");
    // Exactly as a user pastes it.
    let printed = format!("curl {}", demo.line("send        curl "));
    let sent = Command::new("sh").args(["-c", &printed]).output().unwrap();
    let answer: Value = serde_json::from_slice(&sent.stdout)
        .unwrap_or_else(|error| panic!("{printed}: {error}: {sent:?}"));
    assert_eq!(answer["message_id"], "my-1", "{printed}: {answer}");
    while !support::get(console, "/api/v1/explain/my-1").1.contains("\"DISPATCHED\"") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // Some messages have failed by then.
    loop {
        let (status, page) = support::get(console, "/api/v1/dead-letters");
        assert_eq!(status, 200, "{page}");
        if page.contains("\"CONFLICT\"") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (code, proof) = demo.interrupt();
    assert_eq!((code, &proof["holds"]), (Some(0), &Value::Bool(true)), "{proof:#}");
    assert!(is_empty(folder.path()));
}

/// A demo without an end of its own.
struct Watched {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Watched {
    fn start(folder: &Path) -> Self {
        let mut command = demo(folder, &["--seed", "7"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// The rest of the first line from here on that contains this text.
    fn line(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "it ended without `{wanted}`");
            if let Some((_, rest)) = line.split_once(wanted) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Ctrl-C; the exit code and the proof.
    fn interrupt(mut self) -> (Option<i32>, Value) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let (mut out, mut rest) = (String::new(), String::new());
        self.log.read_to_string(&mut rest).unwrap();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{rest}")))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A demo whose temporary files go into this folder.
fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relais"));
    command.arg("demo").args(args).arg("--json").env("TMPDIR", folder).stdin(Stdio::null());
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}
