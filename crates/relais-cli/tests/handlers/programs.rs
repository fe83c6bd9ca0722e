//! The programs of `examples/handlers` handle orders for the real program, and lose the first reply about each
//! message, or repeat the call while the first still runs: every invoice exists once, and so does its message.
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
    sync::OnceLock,
};

use serde_json::Value;

use crate::{
    SECRET, handled, mails, place, post_order,
    proxy::ReplyDropper,
    settings,
    support::{Site, postgres::PostgresSchema},
    until,
};

#[test]
fn a_python_service_that_stores_its_answers_handles_each_message_once() {
    let Some(python) = python("answer.py") else { return };
    let books = check(Books::File("billing.db"), python);
    books.assert_numbers_of_answers();
}

#[test]
fn a_python_service_that_writes_the_outbox_itself_handles_each_message_once() {
    let Some(python) = python("outbox.py") else { return };
    check(Books::File("relais.db"), python);
}

#[test]
fn a_node_service_handles_each_message_once() {
    let Some(node) = node() else { return };
    let Some(books) = Books::postgres(|schema| ("DATABASE_URL", schema.url.clone())) else {
        return;
    };
    check(books, node).assert_numbers_of_answers();
}

#[test]
fn a_go_service_handles_each_message_once() {
    let Some(go) = go() else { return };
    let Some(books) = Books::postgres(go_url) else { return };
    check(books, go);
}

#[test]
fn a_java_service_handles_each_message_once() {
    let Some(java) = java() else { return };
    let Some(books) = Books::postgres(|schema| ("JDBC_URL", jdbc_url(schema))) else { return };
    check(books, java);
}

#[test]
fn a_python_service_is_called_again_while_the_first_call_runs_and_handles_the_message_once() {
    let Some(python) = python("answer.py") else { return };
    overlap(Books::File("billing.db"), python).assert_numbers_of_answers();
}

#[test]
fn a_node_service_is_called_again_while_the_first_call_runs_and_handles_the_message_once() {
    let Some(node) = node() else { return };
    let Some(books) = Books::postgres(|schema| ("DATABASE_URL", schema.url.clone())) else {
        return;
    };
    overlap(books, node).assert_numbers_of_answers();
}

#[test]
fn a_go_service_is_called_again_while_the_first_call_runs_and_handles_the_message_once() {
    let Some(go) = go() else { return };
    let Some(books) = Books::postgres(go_url) else { return };
    overlap(books, go);
}

#[test]
fn a_java_service_is_called_again_while_the_first_call_runs_and_handles_the_message_once() {
    let Some(java) = java() else { return };
    let Some(books) = Books::postgres(|schema| ("JDBC_URL", jdbc_url(schema))) else { return };
    overlap(books, java);
}

fn python(program: &str) -> Option<Command> {
    if !is_there("python3", "--version") {
        not_tested("Python");
        return None;
    }
    let mut python = Command::new("python3");
    python.arg(folder("python").join(program));
    Some(python)
}

fn node() -> Option<Command> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if !is_there("node", "--version") || !is_there("npm", "--version") {
        not_tested("Node");
        return None;
    }
    let folder = FOLDER.get_or_init(|| {
        copied("node", &["package.json", "package-lock.json", "answer.mjs"], |folder| {
            let mut npm = Command::new("npm");
            let quiet = ["--no-audit", "--no-fund", "--ignore-scripts"];
            finish(npm.arg("ci").args(quiet).current_dir(folder));
        })
    });
    let mut node = Command::new("node");
    node.arg(folder.join("answer.mjs"));
    Some(node)
}

fn go() -> Option<Command> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    if !is_there("go", "version") {
        not_tested("Go");
        return None;
    }
    let program = PROGRAM.get_or_init(|| {
        let folder = copied("go", &["go.mod", "go.sum", "main.go"], |_| {});
        finish(Command::new("go").args(["build", "-o", "handler", "."]).current_dir(&folder));
        folder.join("handler")
    });
    Some(Command::new(program))
}

fn java() -> Option<Command> {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    let tools = [("java", "-version"), ("javac", "-version"), ("mvn", "--version")];
    if !tools.iter().all(|(tool, asked)| is_there(tool, asked)) {
        not_tested("Java");
        return None;
    }
    let folder = CLASSES.get_or_init(|| {
        let folder = copied("java", &["pom.xml", "Handler.java"], |folder| {
            let mut maven = Command::new("mvn");
            let quiet = ["--batch-mode", "--quiet", "--strict-checksums"];
            maven.args(quiet).arg("dependency:copy-dependencies");
            maven.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
            finish(maven.current_dir(folder));
        });
        let mut javac = Command::new("javac");
        let classes = folder.join("classes");
        finish(javac.arg("-d").arg(classes).arg(folder.join("Handler.java")));
        folder
    });
    let path = format!("{}:{}/*", folder.join("classes").display(), folder.join("jars").display());
    let mut java = Command::new("java");
    java.args(["-cp", &path, "Handler"]);
    Some(java)
}

/// The database of a service.
enum Books {
    /// A file in the folder of relais.
    File(&'static str),
    /// That of relais, and the variable that names it to the service.
    Postgres(PostgresSchema, (&'static str, String)),
}

impl Books {
    fn postgres(url: impl Fn(&PostgresSchema) -> (&'static str, String)) -> Option<Self> {
        let schema = PostgresSchema::new()?;
        let url = url(&schema);
        Some(Self::Postgres(schema, url))
    }

    /// The database of relais.
    fn store(&self) -> &str {
        match self {
            Self::File(_) => "sqlite:relais.db",
            Self::Postgres(schema, _) => &schema.url,
        }
    }

    fn start(&self, site: &Site, program: &mut Command) -> Service {
        let (name, value) = match self {
            Self::File(file) => ("DATABASE_FILE", text(&site.path(file))),
            Self::Postgres(_, variable) => variable.clone(),
        };
        Service::start(program.env(name, value).env("PORT", "0"))
    }

    /// Returns a column of all invoices.
    fn invoices(&self, site: &Site, column: &str) -> Vec<String> {
        let sql = format!("SELECT CAST({column} AS text) FROM invoices ORDER BY 1");
        match self {
            Self::File(file) => {
                let base = rusqlite::Connection::open(site.path(file)).unwrap();
                let mut statement = base.prepare(&sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Self::Postgres(schema, _) => schema.texts(&sql),
        }
    }

    /// Keeps the service from writing invoices until the answer is dropped.
    fn hold(&self, site: &Site) -> Box<dyn std::any::Any> {
        match self {
            Self::File(file) => {
                let base = rusqlite::Connection::open(site.path(file)).unwrap();
                base.execute_batch("BEGIN IMMEDIATE").unwrap();
                Box::new(base)
            }
            Self::Postgres(schema, _) => {
                Box::new(schema.open("BEGIN; LOCK TABLE invoices IN ACCESS EXCLUSIVE MODE"))
            }
        }
    }
}

/// The books after a test of their service.
struct CheckedBooks {
    site: Site,
    books: Books,
}

impl CheckedBooks {
    /// Compares the random numbers of invoices with those of the messages.
    fn assert_numbers_of_answers(&self) {
        let mut sent: Vec<String> =
            mails(&self.site).iter().map(|mail| field(mail, "number")).collect();
        sent.sort();
        assert_eq!(
            self.books.invoices(&self.site, "number"),
            sent,
            "each answer is the stored one"
        );
    }
}

/// Returns a field of the payload, which may be a JSON text.
fn field(mail: &Value, name: &str) -> String {
    let payload = &mail["payload"];
    let parsed = payload.as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
    let value = &parsed.as_ref().unwrap_or(payload)[name];
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Lets the program handle orders; the first reply about each is lost.
fn check(books: Books, mut program: Command) -> CheckedBooks {
    let site = Site::new();
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    site.write("relais.toml", &settings(books.store(), nowhere, ""));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let service = books.start(&site, &mut program);
    let proxy = ReplyDropper::before(service.address);
    site.write("relais.toml", &settings(books.store(), proxy.address, ""));
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
        let rows = handled(&site);
        rows.len() == 8 && rows.iter().all(is_settled)
    });
    until("all messages are delivered", || mails(&site).len() >= 5);
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");

    let calls = proxy.calls();
    assert_eq!(calls.len(), 8, "one idempotency key for each message: {calls:?}");
    assert!(calls.values().all(|count| *count >= 2), "each was called again: {calls:?}");
    let sent: Vec<(String, String)> =
        mails(&site).iter().map(|mail| (field(mail, "orderId"), field(mail, "cents"))).collect();
    let of_one = sent.iter().filter(|(order, _)| order == "o-1").map(|(_, cents)| cents.as_str());
    assert_eq!(of_one.collect::<Vec<_>>(), ["100", "102", "104"], "the order of a key");
    let all: BTreeSet<(&str, &str)> =
        sent.iter().map(|(order, cents)| (order.as_str(), cents.as_str())).collect();
    let expected = [("o-1", "100"), ("o-1", "102"), ("o-1", "104"), ("o-2", "101"), ("o-3", "103")];
    assert_eq!((all, sent.len()), (expected.into(), 5));
    let invoices = books.invoices(&site, "cents");
    assert_eq!(invoices, ["100", "101", "102", "103", "104"], "one invoice for each message");
    // Each is answered: one attempt, no time-out and no outage. The reply that was cut is an attempt too if other
    // keys succeeded meanwhile.
    for bad in ["bad", "no-total", "no-order"] {
        let is_bad = |row: &String| [1, 2].iter().any(|n| *row == format!("{bad} FAILED {n}"));
        assert!(handled(&site).iter().any(is_bad), "{:?}", handled(&site));
    }
    CheckedBooks { site, books }
}

/// Lets relais repeat calls while the program still handles the first ones.
fn overlap(books: Books, mut program: Command) -> CheckedBooks {
    let site = Site::new();
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    site.write("relais.toml", &settings(books.store(), nowhere, ""));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let service = books.start(&site, &mut program);
    let proxy = ReplyDropper::cutting_early(service.address);
    site.write("relais.toml", &settings(books.store(), proxy.address, ""));
    let running = site.run();
    let held = books.hold(&site);
    place(&running, "m-1", "o-1", 101);
    place(&running, "m-2", "o-2", 102);
    until("both are called again while the first calls run", || proxy.overlapping() == 2);
    drop(held);
    until("both are handled", || {
        let rows = handled(&site);
        rows.len() == 2 && rows.iter().all(|row| row.contains("PROCESSED"))
    });
    until("both messages are delivered", || mails(&site).len() >= 2);
    assert_eq!(running.stop().code, 0);
    assert_eq!(mails(&site).len(), 2);
    assert_eq!(books.invoices(&site, "cents"), ["101", "102"], "one invoice for each message");
    CheckedBooks { site, books }
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

fn go_url(schema: &PostgresSchema) -> (&'static str, String) {
    ("DATABASE_URL", format!("{}&sslmode=disable", schema.url))
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
