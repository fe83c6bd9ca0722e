//! The packages of `cargo xtask dist`, made of the program that the tests built: each is installed, started, asked
//! for its health and stopped, by what the package itself says.
//!
//! The Debian package is installed into a copy of this machine that is removed afterwards (an overlay of file systems),
//! and the programs run in a network and a process table of their own. Both need root.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use serde_json::Value;

/// The folder for files of this test; cargo keeps it.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

/// The packages; made once.
fn packages() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
        let program = xtask.with_file_name("relais");
        assert!(
            program.is_file(),
            "no {}: `cargo build --workspace --all-features` makes it",
            program.display()
        );
        let out = folder().join("out");
        let mut dist = Command::new(xtask);
        dist.args(["dist", "--program"]).arg(program).arg("--out").arg(&out);
        dist.env("SOURCE_DATE_EPOCH", "1700000000");
        succeeded(&mut dist);
        out
    })
}

fn succeeded(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// The one package with this ending.
fn package(ending: &str) -> PathBuf {
    let files = fs::read_dir(packages()).unwrap().map(|file| file.unwrap().path());
    let mut fitting: Vec<_> = files.filter(|f| f.to_string_lossy().ends_with(ending)).collect();
    assert_eq!(fitting.len(), 1, "{ending}: {fitting:?}");
    fitting.remove(0)
}

/// An empty folder.
fn empty(name: &str) -> PathBuf {
    let place = folder().join(name);
    if place.exists() {
        fs::remove_dir_all(&place).unwrap();
    }
    fs::create_dir_all(&place).unwrap();
    place
}

/// Returns true if installing can be tried; in continuous integration it must be.
fn is_root() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        assert!(env::var_os("CI").is_none(), "CI must run the tests of the packages as root");
        eprintln!("NOT TESTED: installing the packages; it needs root");
    }
    root
}

/// A script of this test, apart from the machine's mounts, network and processes. What it starts ends with it.
fn apart(script: &str) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packages");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-eux"]);
    command.arg(scripts.join(script));
    command
}

#[test]
fn the_tarball_has_the_program_completions_and_pages_and_the_checksums_fit() {
    let place = empty("tarball");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(package(".tar.gz")).args(["--strip-components=1", "-C"]);
    succeeded(tar.arg(&place));
    let version = succeeded(Command::new(place.join("bin/relais")).arg("--version"));
    assert_eq!(version.trim(), concat!("relais ", env!("CARGO_PKG_VERSION")));
    for file in [
        "share/bash-completion/completions/relais",
        "share/fish/vendor_completions.d/relais.fish",
        "share/zsh/site-functions/_relais",
        "share/man/man1/relais.1",
        "share/man/man1/relais-health.1",
        "share/doc/relais/LICENSE-MIT",
        "share/doc/relais/THIRD-PARTY-LICENSES",
        "share/doc/relais/examples/relais.toml",
        "lib/sysusers.d/relais.conf",
    ] {
        assert!(fs::metadata(place.join(file)).unwrap().len() > 0, "{file}");
    }
    let unit = fs::read_to_string(place.join("lib/systemd/system/relais.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/relais "), "{unit}");
    let mut check = Command::new("sha256sum");
    let checked =
        succeeded(check.current_dir(packages()).args(["--check", "--strict", "SHA256SUMS"]));
    assert_eq!(checked.lines().count(), 3, "{checked}");
}

#[test]
fn every_package_has_the_licence_texts_of_what_is_compiled_in() {
    let list = "share/doc/relais/THIRD-PARTY-LICENSES";
    let shell = |script: &str, package: PathBuf| {
        succeeded(Command::new("sh").args(["-euc", script]).arg(package))
    };
    let tarball =
        shell("tar -xzOf \"$0\" --wildcards '*/THIRD-PARTY-LICENSES'", package(".tar.gz"));
    let deb = format!("dpkg-deb --fsys-tarfile \"$0\" | tar -xO ./usr/{list}");
    assert_eq!(shell(&deb, package(".deb")), tarball);
    let layout = empty("licences");
    succeeded(Command::new("tar").arg("-xf").arg(package(".oci.tar")).arg("-C").arg(&layout));
    let layers =
        "for layer in \"$0\"/blobs/sha256/*; do tar -tzf \"$layer\" 2>/dev/null || true; done";
    assert!(shell(layers, layout).contains(&format!("usr/{list}\n")));
    // Each library of the program by name, and texts of those that contain another.
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "-p", "relais-cli", "--features", "full"]);
    let tree = succeeded(tree.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]));
    let mut compared = 0;
    for line in tree.lines().filter(|line| !line.contains("(/") && !line.is_empty()) {
        let (name, version) = line.split_once(" v").unwrap();
        let version = version.split(' ').next().unwrap();
        assert!(tarball.contains(&format!("\n{name} {version}: ")), "{line}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} libraries");
    assert!(tarball.contains("librdkafka - Apache Kafka C driver library"), "{}", tarball.len());
}

/// Runs a script in a copy of this machine that has the package.
fn installed(ending: &str, script: &str) {
    succeeded(apart("install.sh").arg(package(ending)).arg(empty(script)).arg(script));
}

#[test]
fn the_tarball_is_installed_and_started_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let page = fs::read_to_string(page).unwrap();
    let script = include_str!("packages/tarball.sh");
    for line in ["systemd-sysusers", "install -D -m 0640 -g relais /usr/local/share/doc/relais/"] {
        assert!(page.contains(&format!("\nsudo {line}")) && script.contains(&format!("\n{line}")));
    }
    if is_root() {
        installed(".tar.gz", "tarball.sh");
    }
}

#[test]
fn readme_and_install_page_name_the_packages_as_they_are() {
    for page in ["README.md", "docs/install.md"] {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
        let text = fs::read_to_string(text).unwrap();
        for ending in [".deb", ".tar.gz", ".oci.tar"] {
            let name = package(ending).file_name().unwrap().to_str().unwrap().to_owned();
            // The pages are about amd64.
            let name = name.replace("arm64", "amd64").replace("aarch64", "x86_64");
            assert!(text.contains(&format!("target/dist/{name}")), "{page}: {name}");
        }
    }
}

#[test]
fn the_debian_package_is_installed_started_upgraded_removed_and_purged() {
    if !is_root() {
        return;
    }
    installed(".deb", "deb.sh");
}

/// Reads a blob and checks that its content is what its name says.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let place = layout.join("blobs/sha256").join(digest);
    let sum = succeeded(Command::new("sha256sum").arg(&place));
    assert!(sum.starts_with(digest), "{sum}");
    assert_eq!(fs::metadata(&place).unwrap().len(), descriptor["size"].as_u64().unwrap());
    place
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    words.join(" ")
}

#[test]
fn the_image_runs_without_rights_and_its_health_command_answers() {
    let layout = empty("layout");
    succeeded(Command::new("tar").arg("-xf").arg(package(".oci.tar")).arg("-C").arg(&layout));
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&layout.join("index.json"));
    let manifest = json(&blob(&layout, &index["manifests"][0]));
    let image = json(&blob(&layout, &manifest["config"]));
    let layers: Vec<PathBuf> =
        manifest["layers"].as_array().unwrap().iter().map(|layer| blob(&layout, layer)).collect();
    let unpacked = image["rootfs"]["diff_ids"].as_array().unwrap();
    assert_eq!(layers.len(), unpacked.len());
    for (layer, digest) in layers.iter().zip(unpacked) {
        let sum =
            succeeded(Command::new("sh").args(["-c", "gzip -dc \"$0\" | sha256sum"]).arg(layer));
        assert!(digest.as_str().unwrap().ends_with(sum.split(' ').next().unwrap()), "{digest}");
    }
    // What `docker load` of older versions reads says the same.
    let docker = &json(&layout.join("manifest.json"))[0];
    assert_eq!(docker["Layers"].as_array().unwrap().len(), layers.len());
    assert!(layout.join(docker["Config"].as_str().unwrap()).is_file());
    let config = &image["config"];
    assert_eq!(config["Healthcheck"]["Test"][0], "CMD");
    let health = words(&config["Healthcheck"]["Test"]);
    if !is_root() {
        return;
    }
    let root = empty("image");
    for layer in &layers {
        succeeded(Command::new("tar").arg("-xzpf").arg(layer).arg("-C").arg(&root));
    }
    assert_eq!(fs::metadata(root.join("var/lib/relais")).unwrap().uid(), 65532);
    let mut run = apart("image.sh");
    run.arg(&root).env("IMAGE_USER", config["User"].as_str().unwrap());
    run.env("IMAGE_ENV", words(&config["Env"]));
    run.env("IMAGE_COMMAND", words(&config["Entrypoint"]) + " " + &words(&config["Cmd"]));
    run.env("IMAGE_HEALTH", health.strip_prefix("CMD ").unwrap());
    succeeded(&mut run);
}
