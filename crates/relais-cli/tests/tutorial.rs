//! The README and the Rust tutorial, followed to the letter: a new package with exactly the dependencies
//! that the tutorial names is built from its code blocks, and run.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// The profile of the workspace, so that compiled packages with the same features are reused.
const PROFILE: &str = "[profile.dev]\ndebug = \"line-tables-only\"\n\
    [profile.dev.package.\"*\"]\ndebug = false\n\
    [profile.dev.package.sha2]\nopt-level = 3\n\
    [profile.dev.package.serde_json]\nopt-level = 2\n\
    [profile.dev.package.relais-core]\nopt-level = 1\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The code blocks of a page whose language begins so.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let parts = page.split("```").skip(1).step_by(2);
    let of = |part: &str| {
        let (head, code) = part.split_once('\n')?;
        head.starts_with(language).then(|| code.to_owned())
    };
    parts.filter_map(of).collect()
}

#[test]
fn the_readme_shows_how_to_install_and_its_excerpt_commits() {
    let readme = page("README.md");
    let install =
        readme.find("cargo install --locked --path crates/relais-cli").expect("an install line");
    let first = readme.find("\nrelais init").expect("the first command");
    assert!(install < first, "the command is used before it is installed");
    assert!(root().join("crates/relais-cli/Cargo.toml").exists());
    let excerpt = &blocks(&readme, "rust")[0];
    assert!(excerpt.contains("tx.commit()?;"), "{excerpt}");
    let opened = excerpt.matches('{').count();
    assert_eq!(opened, excerpt.matches('}').count(), "it ends in the middle: {excerpt}");
    assert!(page("docs/tutorial-rust.md").contains(excerpt.trim()), "it is not in the tutorial");
}

/// Kinds of sources and destinations that are features of the program.
const FEATURES: [&str; 4] = ["amqp", "kafka", "nats", "rabbitmq"];

#[test]
fn a_kind_that_init_is_given_is_a_feature_of_the_install_line_above_it() {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|one| one == "md")).collect();
    pages.push(root().join("README.md"));
    let mut found = 0;
    for path in pages {
        let text = fs::read_to_string(&path).unwrap();
        let mut install = None;
        for line in text.lines() {
            if line.starts_with("cargo install") && line.contains("crates/relais-cli") {
                install = Some(line);
            }
            let (Some(install), Some((_, init))) = (install, line.split_once("relais init --"))
            else {
                continue;
            };
            found += 1;
            // The line itself may name the features that it needs.
            let features = features(install) + &features(line);
            for kind in FEATURES.into_iter().filter(|kind| init.contains(kind)) {
                let has = features.contains("full") || features.contains(kind);
                assert!(has, "{}: `{install}`, then `{line}`", path.display());
            }
        }
    }
    assert!(found > 0, "no page shows `relais init --from` below an install line");
}

/// The words behind each `--features` of a line.
fn features(line: &str) -> String {
    line.split("--features ")
        .skip(1)
        .filter_map(|rest| rest.split([' ', ')', ':', '`']).next())
        .collect()
}

#[test]
fn the_rust_tutorial_builds_and_runs_as_written() {
    // Another test may use the port that the page names.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let tutorial = page("docs/tutorial-rust.md").replace("127.0.0.1:7071", &free);
    let folder = tempfile::tempdir().unwrap();
    let [service, payments] = &blocks(&tutorial, "rust")[..] else {
        panic!("other steps than two")
    };
    let dependencies = &blocks(&tutorial, "toml")[0];
    let relais = format!("path = \"{}\"", root().join("crates/relais").display());
    let wanted = "path = \"../relais/crates/relais\"";
    assert!(dependencies.contains(wanted), "{dependencies}");
    let manifest = format!(
        "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         default-run = \"shop\"\n[workspace]\n{PROFILE}{}",
        dependencies.replace(wanted, &relais)
    );
    fs::create_dir_all(folder.path().join("src/bin")).unwrap();
    for (name, text) in
        [("Cargo.toml", &manifest), ("src/main.rs", service), ("src/bin/payments.rs", payments)]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    // The versions of this repository, which are downloaded already.
    fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_relais")).ancestors().nth(2).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet"])
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    assert!(!said.contains("warning"), "a user sees this: {said}");

    let ran = Command::new(target.join("debug/shop")).current_dir(folder.path()).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && out.contains("o-1"), "{ran:?}");

    react(folder.path(), target, &tutorial);
}

/// Step 3: the payment is sent as it is printed, twice.
fn react(folder: &Path, target: &Path, tutorial: &str) {
    let mut command = Command::new(target.join("debug/payments"));
    let child = command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut payments = Stopped(child.unwrap());
    let shell = blocks(tutorial, "sh");
    let curl = shell.iter().find(|line| line.starts_with("curl ")).expect("a line to send with");
    let send = || {
        let sent = Command::new("sh").args(["-c", curl]).output().unwrap();
        String::from_utf8_lossy(&sent.stdout).into_owned()
    };
    let started = Instant::now();
    let first = loop {
        let answer = send();
        if answer.contains("p-1") {
            break answer;
        }
        if let Some(ended) = payments.0.try_wait().unwrap() {
            panic!("it ended: {ended}");
        }
        assert!(started.elapsed() < PATIENCE, "no answer: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(first.contains("stored"), "{first}");
    assert!(send().contains("duplicate"));
    let paid = || {
        let db = rusqlite::Connection::open(folder.join("shop.db")).unwrap();
        db.busy_timeout(PATIENCE).unwrap();
        let sql = include_str!("support/paid.sql");
        db.query_row(sql, (), |row| row.get::<_, Option<i64>>(0)).unwrap()
    };
    while paid() != Some(1) {
        assert!(started.elapsed() < PATIENCE, "the handler has not run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ended with the test, however that ends.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
