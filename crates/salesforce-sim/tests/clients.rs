//! Unmodified third-party clients work with the simulator: jsforce (npm) and simple-salesforce
//! (PyPI).
//!
//! Both are installed once into `RELAIS_TEST_CLIENTS_DIR`, or below the target folder. Without node
//! or python the test prints clearly that it did not run; with `CI` set it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use salesforce_sim::{RunningSimulator, Simulator, SimulatorConfig, TlsConfig};

/// Reports that a client cannot be tested here.
fn not_tested(client: &str, needed: &str) {
    assert!(env::var_os("CI").is_none(), "{client} cannot be tested: install {needed}");
    println!("NOT TESTED: {client} against the simulator: install {needed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jsforce_works_unmodified_over_http_and_tls() {
    let Some(folder) = installed_jsforce() else {
        return not_tested("jsforce", "node 18 or later with npm");
    };
    let world = World::start(&folder).await;
    for url in [world.sim.url(), world.sim.tls_url().unwrap()] {
        let mut command = Command::new("node");
        command.arg(folder.join("check.mjs")).arg(url).env("NODE_EXTRA_CA_CERTS", &world.ca);
        run(command.current_dir(&folder)).await;
    }
    world.proved("js-");
}

#[tokio::test(flavor = "multi_thread")]
async fn simple_salesforce_works_unmodified_over_tls() {
    let Some((folder, python)) = installed_simple_salesforce() else {
        return not_tested("simple-salesforce", "python 3.11 or later with venv and pip");
    };
    let world = World::start(&folder).await;
    let mut command = Command::new(python);
    command.arg(clients().join("check.py")).arg(world.sim.tls_url().unwrap()).arg(&world.ca);
    run(&mut command).await;
    world.proved("py-");
}

/// A simulator on both listeners, with a certificate authority that the clients trust.
struct World {
    sim: RunningSimulator,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(near: &Path) -> Self {
        let folder = tempfile::tempdir_in(near).unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Needs its own name: a certificate with the name of its issuer counts as self-signed.
        authority.distinguished_name.push(DnType::CommonName, "authority of the test");
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "sim.my.salesforce.com".to_owned()];
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, authority.pem()).unwrap();
        let pem = format!("{}{}", leaf.pem(), key.serialize_pem());
        let tls = TlsConfig { listen: ([127, 0, 0, 1], 0).into(), pem };
        let sim =
            Simulator::start(SimulatorConfig { tls: Some(tls), ..SimulatorConfig::default() })
                .await
                .unwrap();
        Self { sim, ca, _folder: folder }
    }

    /// Checks that the rows of the client arrived, none of the bulk rows twice.
    fn proved(&self, prefix: &str) {
        let ledger = self.sim.ledger();
        let many = ledger.entries().filter(|entry| {
            entry.external_id.starts_with(prefix) && entry.external_id.contains("many")
        });
        let many: Vec<_> = many.collect();
        assert!(many.len() >= 12_000, "{} rows", many.len());
        assert!(many.iter().all(|entry| entry.created == 1 && entry.unchanged == 0));
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

fn cache() -> PathBuf {
    let chosen = env::var_os("RELAIS_TEST_CLIENTS_DIR").map(PathBuf::from);
    chosen.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("salesforce-clients"))
}

/// Returns a folder with check.mjs and jsforce; `None` without node.
fn installed_jsforce() -> Option<PathBuf> {
    if !is_there("node") || !is_there("npm") {
        return None;
    }
    let folder = cache().join("jsforce");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::read_to_string(clients().join("package-lock.json")).unwrap();
    for file in ["package.json", "package-lock.json", "check.mjs"] {
        fs::copy(clients().join(file), folder.join(file)).unwrap();
    }
    install(&folder, &lock, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder);
        finish(&mut npm);
    });
    Some(folder)
}

/// Returns a virtual environment with simple-salesforce; `None` without python.
fn installed_simple_salesforce() -> Option<(PathBuf, PathBuf)> {
    let python = ["python3", "python"].into_iter().find(|name| is_there(name))?;
    let folder = cache().join("simple-salesforce");
    fs::create_dir_all(&folder).unwrap();
    let wanted = clients().join("requirements.txt");
    let text = fs::read_to_string(&wanted).unwrap();
    let venv = folder.join("venv");
    let own = venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    install(&folder, &text, |_| {
        finish(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv));
        finish(Command::new(&own).args(["-m", "pip", "install", "-q", "-r"]).arg(&wanted));
    });
    Some((folder, own))
}

/// Installs the client unless exactly this version is installed.
fn install(folder: &Path, wanted: &str, install: impl FnOnce(&Path)) {
    let mark = folder.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let _ = fs::remove_file(&mark);
    install(folder);
    fs::write(&mark, wanted).unwrap();
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a client with the simulator, without environment variables that redirect it.
async fn run(command: &mut Command) {
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    tokio::task::block_in_place(|| finish(command));
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?} failed\n{out}\n{err}");
    print!("{out}");
}
