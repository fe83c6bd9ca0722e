//! The programs of `docs/languages` write the outbox as services in other languages do: each commits
//! one order with its message, and rolls another one back.
//!
//! Their dependencies are installed once below `RELAIS_TEST_CLIENTS_DIR`, or else the target folder, from npm,
//! PyPI, Maven Central and the Go proxy. Where a language is missing its test says so loudly; with `CI`
//! set it fails. There is no .NET for the tests: of the C# program its statements are run, and nothing else.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    code::tables,
    pages::{read, root},
    support::{Site, postgres::PostgresSchema},
};

#[test]
fn the_outbox_is_written_from_node() {
    let Some(database) = OrderDatabase::on_postgres("Node", &["node", "npm"]) else { return };
    let folder = copied("node", &["package.json", "package-lock.json", "order.mjs"], |folder| {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder);
        finish(&mut npm);
    });
    database.places_orders(|| {
        let mut node = Command::new("node");
        node.arg(folder.join("order.mjs")).env("DATABASE_URL", &database.url);
        node
    });
}

#[test]
fn the_outbox_is_written_from_python() {
    let Some(database) = OrderDatabase::on_postgres("Python", &["python3"]) else { return };
    let folder = copied("python", &["requirements.txt", "order.py"], |folder| {
        let venv = folder.join("venv");
        finish(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        let mut pip = Command::new(venv.join("bin/python"));
        finish(pip.args(["-m", "pip", "install", "-q", "-r"]).arg(folder.join("requirements.txt")));
    });
    database.places_orders(|| {
        let mut python = Command::new(folder.join("venv/bin/python"));
        python.arg(folder.join("order.py")).env("DATABASE_URL", &database.url);
        python
    });
}

#[test]
fn the_outbox_is_written_from_python_to_sqlite() {
    if !is_there("python3") {
        return not_tested("Python");
    }
    let database = OrderDatabase::on_sqlite();
    let program = root().join("docs/languages/python/order_sqlite.py");
    database.places_orders(|| {
        let mut python = Command::new("python3");
        python.arg(&program).env("DATABASE_FILE", database.site.path("relais.db"));
        python
    });
}

#[test]
fn the_outbox_is_written_from_java() {
    let Some(database) = OrderDatabase::on_postgres("Java", &["javac", "java", "mvn"]) else {
        return;
    };
    let folder = copied("java", &["pom.xml", "Order.java"], |folder| {
        let mut maven = Command::new("mvn");
        maven.args([
            "--batch-mode",
            "--quiet",
            "--strict-checksums",
            "dependency:copy-dependencies",
        ]);
        maven.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
        finish(maven.current_dir(folder));
    });
    let classes = tempfile::tempdir().unwrap();
    let mut javac = Command::new("javac");
    finish(javac.arg("-d").arg(classes.path()).arg(folder.join("Order.java")));
    let path = format!("{}:{}/*", classes.path().display(), folder.join("jars").display());
    database.places_orders(|| {
        let mut java = Command::new("java");
        java.args(["-cp", &path, "Order"]).env("JDBC_URL", database.jdbc_url());
        java
    });
}

#[test]
fn the_outbox_is_written_from_go() {
    let Some(database) = OrderDatabase::on_postgres("Go", &["go"]) else { return };
    let folder = copied("go", &["go.mod", "go.sum", "main.go"], |_| {});
    let mut go = Command::new("go");
    finish(go.args(["build", "-o", "order", "."]).current_dir(&folder));
    database.places_orders(|| {
        let mut order = Command::new(folder.join("order"));
        order.env("DATABASE_URL", format!("{}&sslmode=disable", database.url));
        order
    });
}

#[test]
fn the_csharp_statements_have_the_same_effects_as_the_others() {
    let Some(database) = OrderDatabase::on_postgres("C#", &[]) else { return };
    let schema = database.schema.as_ref().unwrap();
    let mut sql = format!("SET search_path TO {}; BEGIN;", schema.name);
    let statements = statements(&read("docs/languages/csharp/Order.cs"));
    assert_eq!(statements.len(), 2, "an order and its message: {statements:?}");
    for (statement, values) in
        statements.iter().zip([["'o-1'", "1999"], ["'o-1'", r#"'{"orderId":"o-1","total":1999}'"#]])
    {
        sql.push_str(&statement.replace("$1", values[0]).replace("$2", values[1]));
        sql.push(';');
    }
    schema.execute(&(sql + "COMMIT"));
    database.has_one_message();
}

/// The texts in a C# program that begin with INSERT, between `"` or `"""`.
fn statements(program: &str) -> Vec<String> {
    let texts = program.replace("\"\"\"", "\"");
    let texts = texts.split('"').filter(|text| text.trim_start().starts_with("INSERT"));
    texts.map(|text| text.trim().to_owned()).collect()
}

/// A database with the tables of relais and of a database.
struct OrderDatabase {
    site: Site,
    url: String,
    schema: Option<PostgresSchema>,
}

impl OrderDatabase {
    /// None where PostgreSQL or the language is not to be had.
    fn on_postgres(language: &str, programs: &[&str]) -> Option<Self> {
        let schema = PostgresSchema::new()?;
        if !programs.iter().all(|program| is_there(program)) {
            not_tested(language);
            return None;
        }
        let site = Site::with(&format!("[store]\nurl = \"{}\"\n", schema.url));
        assert_eq!(site.relais(&["migrate"]).code, 0);
        schema.execute(&format!("SET search_path TO {}; {}", schema.name, tables()));
        Some(Self { site, url: schema.url.clone(), schema: Some(schema) })
    }

    fn on_sqlite() -> Self {
        let site = Site::with("[store]\nurl = \"sqlite:relais.db\"\n");
        assert_eq!(site.relais(&["migrate"]).code, 0);
        let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
        db.execute_batch(&tables()).unwrap();
        Self { site, url: String::new(), schema: None }
    }

    /// One order is committed with its message; another one fails, and there is nothing of it.
    fn places_orders(&self, program: impl Fn() -> Command) {
        finish(program().args(["o-1", "1999"]));
        let failed = program().args(["o-2", "5", "fail"]).output().unwrap();
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains("cannot be placed"), "{said}");
        self.has_one_message();
    }

    fn has_one_message(&self) {
        let rows = self.site.json(&["outbox", "list"]);
        let rows = rows.as_array().or_else(|| rows["items"].as_array()).unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        let row = &rows[0];
        for (column, value) in [
            ("aggregate_type", "Order"),
            ("aggregate_id", "o-1"),
            ("event_type", "OrderCreated"),
            ("destination", "orders"),
            ("status", "PENDING"),
            ("msg_key", "o-1"),
        ] {
            assert_eq!(row[column], value, "{row:#}");
        }
        let id = row["id"].to_string();
        let row = self.site.json(&["outbox", "show", &id]);
        let payload = row["payload"].as_str().unwrap_or_else(|| panic!("{row:#}"));
        let payload: Value = serde_json::from_str(payload).unwrap();
        assert_eq!(payload, json!({"orderId": "o-1", "total": 1999}));
    }

    /// `postgres://user:password@host/database?…` as the driver wants it.
    fn jdbc_url(&self) -> String {
        let rest = self.url.split_once("://").unwrap().1;
        let (login, place) = rest.split_once('@').unwrap();
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let schema = &self.schema.as_ref().unwrap().name;
        let place = place.split('?').next().unwrap();
        format!("jdbc:postgresql://{place}?user={user}&password={password}&currentSchema={schema}")
    }
}

fn not_tested(language: &str) {
    assert!(env::var_os("CI").is_none(), "the outbox from {language} cannot be tested: install it");
    println!("NOT TESTED: the outbox from {language}: install it");
}

/// A folder with the files of a language; `install` brings what they need, once.
fn copied(language: &str, files: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let chosen = env::var_os("RELAIS_TEST_CLIENTS_DIR").map(PathBuf::from);
    let cache = chosen.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"));
    let folder = cache.join("outbox").join(language);
    fs::create_dir_all(&folder).unwrap();
    let from = root().join("docs/languages").join(language);
    for file in files {
        fs::copy(from.join(file), folder.join(file)).unwrap();
    }
    let wanted = fs::read_to_string(from.join(files[0])).unwrap();
    let mark = folder.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    let _ = fs::remove_file(&mark);
    install(&folder);
    fs::write(&mark, wanted).unwrap();
    folder
}

fn is_there(program: &str) -> bool {
    let asked = if program == "go" { "version" } else { "--version" };
    Command::new(program).arg(asked).output().is_ok_and(|output| output.status.success())
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?} failed\n{out}\n{err}");
}
