//! Microsoft's own client works with the simulator, unmodified: `azure-messaging-servicebus` for Java,
//! from Maven Central.
//!
//! It is installed once into `RELAIS_TEST_CLIENTS_DIR`, or below the target folder. Without a Java
//! compiler or Maven the test prints clearly that it did not run; with `CI` set it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use servicebus_sim::{EntityConfig, NamespaceConfig, ServiceBusSimulator};

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_microsoft_works_unmodified() {
    let Some(folder) = installed() else {
        let needed = "a JDK of version 17 or later, and Maven";
        assert!(env::var_os("CI").is_none(), "the client cannot be tested: install {needed}");
        println!("NOT TESTED: azure-messaging-servicebus against the simulator: install {needed}");
        return;
    };
    let sim = ServiceBusSimulator::start(namespace()).await.unwrap();
    let right = sim.connection_string(&format!("localhost:{}", sim.address().port()));
    let wrong = right.replace("SharedAccessKey=", "SharedAccessKey=d3Jvbmc");
    let mut command = Command::new("java");
    command.arg("-cp").arg(folder.join("jars/*")).arg(clients().join("Check.java"));
    command.arg(right).arg(wrong);
    tokio::task::block_in_place(|| finish(&mut command));
    for queue in ["orders", "orders/$deadletterqueue", "once", "sessions", "short"] {
        assert!(sim.is_empty(queue), "{queue} has {} messages", sim.len(queue));
    }
    assert_eq!(sim.duplicates("once"), 1);
}

fn namespace() -> NamespaceConfig {
    let sessions = EntityConfig { sessions: true, ..EntityConfig::default() };
    let window = Some(Duration::from_secs(600));
    let once = EntityConfig { duplicate_window: window, ..EntityConfig::default() };
    let short = EntityConfig { lock: Duration::from_secs(2), ..EntityConfig::default() };
    let subscriptions = ["all", "audit"].map(|name| (name.to_owned(), EntityConfig::default()));
    let queues = [
        ("orders", EntityConfig::default()),
        ("sessions", sessions),
        ("once", once),
        ("short", short),
    ];
    NamespaceConfig {
        queues: queues.map(|(name, config)| (name.to_owned(), config)).to_vec(),
        topics: vec![("events".to_owned(), subscriptions.to_vec())],
        ..NamespaceConfig::default()
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Returns a folder with the client in `jars`; `None` without a Java compiler or Maven.
fn installed() -> Option<PathBuf> {
    if !["java", "javac", "mvn"].into_iter().all(is_there) {
        return None;
    }
    let chosen = env::var_os("RELAIS_TEST_CLIENTS_DIR").map(PathBuf::from);
    let folder =
        chosen.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("servicebus-client"));
    fs::create_dir_all(&folder).unwrap();
    let pom = fs::read_to_string(clients().join("pom.xml")).unwrap();
    let mark = folder.join("servicebus-installed");
    if !fs::read_to_string(&mark).is_ok_and(|installed| installed == pom) {
        let _ = fs::remove_file(&mark);
        let mut copy = Command::new("mvn");
        copy.args(["--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never"]);
        copy.arg("--file").arg(clients().join("pom.xml"));
        copy.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        finish(copy.arg(format!("-DoutputDirectory={}", folder.join("jars").display())));
        fs::write(&mark, pom).unwrap();
    }
    Some(folder)
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "the client failed\n{out}\n{err}");
    print!("{out}");
}
