//! The programs of `examples/handlers` handle orders for the real program, and lose the first reply about each
//! message: every invoice exists once, and so does its message.
//!
//! Their dependencies are installed once below `RELAIS_TEST_CLIENTS_DIR`, or else the target folder, from npm,
//! Maven Central and the Go proxy. Where a language is missing its test says so; with `CI` set it fails.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    SECRET, handled, mails, place, post_order,
    proxy::ReplyDropper,
    settings,
    support::{Site, postgres::PostgresSchema},
    until,
};

#[test]
fn a_python_service_that_stores_its_answers_handles_each_message_once() {
    if !is_there("python3", "--version") {
        return not_tested("Python");
    }
    let mut python = Command::new("python3");
    python.arg(folder("python").join("answer.py"));
    check(&Site::new(), None, python, |site| ("DATABASE_FILE", text(&site.path("billing.db"))));
}

#[test]
fn a_python_service_that_writes_the_outbox_itself_handles_each_message_once() {
    if !is_there("python3", "--version") {
        return not_tested("Python");
    }
    let mut python = Command::new("python3");
    python.arg(folder("python").join("outbox.py"));
    check(&Site::new(), None, python, |site| ("DATABASE_FILE", text(&site.path("relais.db"))));
}

#[test]
fn a_node_service_handles_each_message_once() {
    if !is_there("node", "--version") || !is_there("npm", "--version") {
        return not_tested("Node");
    }
    let Some(schema) = PostgresSchema::new() else { return };
    let files = ["package.json", "package-lock.json", "answer.mjs"];
    let folder = copied("node", &files, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder);
        finish(&mut npm);
    });
    let mut node = Command::new("node");
    node.arg(folder.join("answer.mjs"));
    let url = schema.url.clone();
    check(&Site::new(), Some(&schema), node, |_| ("DATABASE_URL", url));
}

#[test]
fn a_go_service_handles_each_message_once() {
    if !is_there("go", "version") {
        return not_tested("Go");
    }
    let Some(schema) = PostgresSchema::new() else { return };
    let folder = copied("go", &["go.mod", "go.sum", "main.go"], |_| {});
    finish(Command::new("go").args(["build", "-o", "handler", "."]).current_dir(&folder));
    let url = format!("{}&sslmode=disable", schema.url);
    let program = Command::new(folder.join("handler"));
    check(&Site::new(), Some(&schema), program, |_| ("DATABASE_URL", url));
}

#[test]
fn a_java_service_handles_each_message_once() {
    let tools = [("java", "-version"), ("javac", "-version"), ("mvn", "--version")];
    if !tools.iter().all(|(tool, asked)| is_there(tool, asked)) {
        return not_tested("Java");
    }
    let Some(schema) = PostgresSchema::new() else { return };
    let folder = copied("java", &["pom.xml", "Handler.java"], |folder| {
        let mut maven = Command::new("mvn");
        let quiet = ["--batch-mode", "--quiet", "--strict-checksums"];
        maven.args(quiet).arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
        finish(maven.current_dir(folder));
    });
    let classes = tempfile::tempdir().unwrap();
    let mut javac = Command::new("javac");
    finish(javac.arg("-d").arg(classes.path()).arg(folder.join("Handler.java")));
    let path = format!("{}:{}/*", classes.path().display(), folder.join("jars").display());
    let mut java = Command::new("java");
    java.args(["-cp", &path, "Handler"]);
    let url = jdbc_url(&schema);
    check(&Site::new(), Some(&schema), java, |_| ("JDBC_URL", url));
}

/// Lets the program handle orders; `database` names its database once the tables of relais exist.
fn check(
    site: &Site,
    schema: Option<&PostgresSchema>,
    mut program: Command,
    database: impl FnOnce(&Site) -> (&'static str, String),
) {
    let store = schema.map_or("sqlite:relais.db", |schema| schema.url.as_str());
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    site.write("relais.toml", &settings(store, nowhere, ""));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let (name, value) = database(site);
    let service = Service::start(program.env(name, value).env("PORT", "0"));
    let proxy = ReplyDropper::before(service.address);
    site.write("relais.toml", &settings(store, proxy.address, ""));
    let probed = site.relais(&["check", "--connect"]);
    assert!(probed.out.contains("ok   handler[billing].url"), "{probed:?}");
    let running = site.run();
    for (n, order) in ["o-1", "o-2", "o-1", "o-3", "o-1"].into_iter().enumerate() {
        place(&running, &format!("m-{n}"), order, 100 + i64::try_from(n).unwrap());
    }
    place(&running, "bad", "o-9", -5);
    post_order(&running, "no-total", r#"{"type":"OrderPlaced","orderId":"o-8"}"#);
    post_order(&running, "no-order", r#"{"type":"OrderPlaced","orderId":7,"total":1}"#);
    let is_settled = |row: &String| row.contains("PROCESSED") || row.contains("FAILED");
    until("all are handled", || {
        let rows = handled(site);
        rows.len() == 8 && rows.iter().all(is_settled)
    });
    until("all messages are delivered", || mails(site).len() >= 5);
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");

    let calls = proxy.calls();
    assert_eq!(calls.len(), 8, "one idempotency key for each message: {calls:?}");
    assert!(calls.values().all(|count| *count >= 2), "each was called again: {calls:?}");
    let mut invoices: Vec<String> =
        mails(site).iter().map(|mail| mail["payload"].to_string()).collect();
    assert_eq!(invoices.len(), 5, "{invoices:?}");
    let cents = |invoice: &String| {
        let value: serde_json::Value = serde_json::from_str(invoice).unwrap();
        let value =
            value.as_str().map_or(value.clone(), |text| serde_json::from_str(text).unwrap());
        (value["orderId"].as_str().unwrap().to_owned(), value["cents"].as_i64().unwrap())
    };
    invoices.sort();
    let sent: BTreeSet<(String, i64)> = invoices.iter().map(cents).collect();
    let expected = [("o-1", 100), ("o-1", 102), ("o-1", 104), ("o-2", 101), ("o-3", 103)];
    assert_eq!(sent, expected.map(|(order, cents)| (order.to_owned(), cents)).into());
    let of_one: Vec<i64> = mails(site)
        .iter()
        .map(|mail| cents(&mail["payload"].to_string()))
        .filter_map(|(order, cents)| (order == "o-1").then_some(cents))
        .collect();
    assert_eq!(of_one, [100, 102, 104], "the order of a key");
    // Each is answered: one attempt, no time-out and no outage. The reply that was cut is an attempt too if other
    // keys succeeded meanwhile.
    for bad in ["bad", "no-total", "no-order"] {
        let is_bad = |row: &String| [1, 2].iter().any(|n| *row == format!("{bad} FAILED {n}"));
        assert!(handled(site).iter().any(is_bad), "{:?}", handled(site));
    }
}

/// A program that runs until the test ends.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(program: &mut Command) -> Self {
        program.env("RELAIS_SECRET", SECRET).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().and_then(|port| port.parse().ok());
        let port: u16 = port.unwrap_or_else(|| panic!("it does not listen: {line}"));
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended; nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/handlers").join(language)
}

/// A folder with the files of a language; `install` brings what they need, once.
fn copied(language: &str, files: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let chosen = env::var_os("RELAIS_TEST_CLIENTS_DIR").map(PathBuf::from);
    let cache = chosen.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"));
    let copy = cache.join("handlers").join(language);
    fs::create_dir_all(&copy).unwrap();
    let from = folder(language);
    for file in files {
        fs::copy(from.join(file), copy.join(file)).unwrap();
    }
    let wanted = fs::read_to_string(from.join(files[0])).unwrap();
    let mark = copy.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return copy;
    }
    let _ = fs::remove_file(&mark);
    install(&copy);
    fs::write(&mark, wanted).unwrap();
    copy
}

/// `postgres://user:password@host/database?…` as the driver wants it.
fn jdbc_url(schema: &PostgresSchema) -> String {
    let rest = schema.url.split_once("://").unwrap().1;
    let (login, place) = rest.split_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let place = place.split('?').next().unwrap();
    let schema = &schema.name;
    format!("jdbc:postgresql://{place}?user={user}&password={password}&currentSchema={schema}")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn not_tested(language: &str) {
    assert!(env::var_os("CI").is_none(), "a handler in {language} cannot be tested: install it");
    println!("NOT TESTED: a handler in {language}: install it");
}

fn is_there(program: &str, asked: &str) -> bool {
    Command::new(program).arg(asked).output().is_ok_and(|output| output.status.success())
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?} failed\n{out}\n{err}");
}
