//! The OCI image, written without Docker: a layout in one archive, which `docker load`, `podman load`, `skopeo`
//! and `ctr images import` read.
//!
//! There is no base image. The first layer has what the program needs of this machine: the shared libraries it
//! is linked to, certificates, a user; the second has the program. Entries of dpkg say which packages the
//! files are from, so that scanners know them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Release, archive, licenses, stage};
use crate::command;

/// The user in the image, as Kubernetes manifests name it.
const USER: u32 = 65532;
const STATE: &str = "var/lib/relais";
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The path at which OpenSSL, which librdkafka uses, reads them.
const OPENSSL_CERTIFICATES: &str = "/usr/lib/ssl/cert.pem";
const SECOND: u64 = 1_000_000_000;

pub(super) fn write(release: &Release, folder: &Path) -> Result<()> {
    let layout = Layout { folder: folder.join("layout") };
    stage::folder(&layout.blobs())?;
    let base = folder.join("base");
    stage_base(release, &base)?;
    let program = folder.join("program");
    stage_program(release, &program)?;
    let layers = [
        layout.layer(release, &base, None)?,
        layout.layer(release, &program, Some((USER, STATE)))?,
    ];
    let created = command::output(Command::new("date").args([
        "-u",
        "-d",
        &format!("@{}", release.epoch),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]))?;
    let config = configuration(release, created.trim(), &layers);
    let config = layout.json("application/vnd.oci.image.config.v1+json", &config)?;
    layout.index(release, &config, &layers)?;
    let name = format!("relais-{}-linux-{}.oci.tar", release.version, release.architecture);
    archive::tar(&layout.folder, &release.file(&name), release.epoch, &["."])
}

/// A layer as the manifest and the configuration name it.
struct Layer {
    descriptor: Value,
    /// The digest before compression.
    unpacked: String,
}

/// The folder that becomes the archive.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    /// Packs a folder, of which a part may belong to another user.
    fn layer(&self, release: &Release, top: &Path, owned: Option<(u32, &str)>) -> Result<Layer> {
        let tar = top.with_extension("tar");
        let owned_folder = top.with_extension("owned");
        if let Some((_, part)) = owned {
            let place = owned_folder.join(part);
            stage::folder(place.parent().context("a folder has a parent")?)?;
            fs::rename(top.join(part), place)?;
        }
        archive::tar(top, &tar, release.epoch, &["."])?;
        if let Some((user, part)) = owned {
            archive::add_as(user, &owned_folder, &tar, release.epoch, &[part])?;
        }
        let packed = top.with_extension("tar.gz");
        archive::gzip(&tar, &packed)?;
        let descriptor = self.keep(&packed, "application/vnd.oci.image.layer.v1.tar+gzip")?;
        Ok(Layer { descriptor, unpacked: format!("sha256:{}", archive::sha256(&tar)?) })
    }

    fn json(&self, kind: &str, value: &Value) -> Result<Value> {
        let file = self.folder.with_extension("json");
        fs::write(&file, serde_json::to_vec(value)?)?;
        self.keep(&file, kind)
    }

    /// Moves a file to where its digest says, and describes it.
    fn keep(&self, file: &Path, kind: &str) -> Result<Value> {
        let digest = archive::sha256(file)?;
        let place = self.blobs().join(&digest);
        fs::rename(file, &place)?;
        stage::mode(&place, 0o644)?;
        let size = fs::metadata(&place)?.len();
        Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size }))
    }

    fn index(&self, release: &Release, config: &Value, layers: &[Layer]) -> Result<()> {
        const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
        let layers: Vec<&Value> = layers.iter().map(|layer| &layer.descriptor).collect();
        let mut manifest = self.json(
            MANIFEST,
            &json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
            }),
        )?;
        let name = format!("relais:{}", release.version);
        manifest["platform"] = json!({ "architecture": release.architecture, "os": "linux" });
        manifest["annotations"] = json!({
            "org.opencontainers.image.ref.name": name,
            "io.containerd.image.name": format!("docker.io/library/{name}"),
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap_or_default();
            format!("blobs/{}", digest.replace(':', "/"))
        };
        // Not of OCI: a Docker before version 25 reads this file instead of the index.
        let docker = json!([{
            "Config": blob(config),
            "RepoTags": [name],
            "Layers": layers.iter().map(|layer| blob(layer)).collect::<Vec<_>>(),
        }]);
        stage::write(&self.folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        stage::write(&self.folder.join("manifest.json"), &docker.to_string())?;
        stage::write(&self.folder.join("index.json"), &index.to_string())
    }
}

fn configuration(release: &Release, created: &str, layers: &[Layer]) -> Value {
    let unpacked: Vec<&str> = layers.iter().map(|layer| layer.unpacked.as_str()).collect();
    let history = ["libraries, certificates and user", "program"].map(
        |what| json!({ "created": created, "created_by": format!("cargo xtask dist: {what}") }),
    );
    json!({
        "created": created,
        "architecture": release.architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", "RELAIS_CONFIG=/etc/relais/relais.toml"],
            "Entrypoint": ["/usr/bin/relais"],
            "Cmd": ["run", "--log", "json"],
            "WorkingDir": format!("/{STATE}"),
            "ExposedPorts": { "7070/tcp": {}, "7071/tcp": {} },
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "relais",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "org.opencontainers.image.description":
                    "Reliable messaging between a database and other systems",
            },
            // Docker's and Podman's; Kubernetes has its own probes.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/relais", "health"],
                "Interval": 10 * SECOND,
                "Timeout": 5 * SECOND,
                "StartPeriod": 60 * SECOND,
                "Retries": 3,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": unpacked },
        "history": history,
    })
}

fn stage_base(release: &Release, top: &Path) -> Result<()> {
    let mut packages = BTreeSet::from(["ca-certificates".to_owned()]);
    let linked = command::output(Command::new("ldd").arg(&release.program))?;
    for library in libraries(&linked) {
        stage::copy(Path::new(library), &inside(top, library), 0o755)?;
        packages.insert(package_of(library)?);
    }
    stage::copy(Path::new(CERTIFICATES), &inside(top, CERTIFICATES), 0o644)?;
    let openssl = inside(top, OPENSSL_CERTIFICATES);
    stage::folder(openssl.parent().context("a file has a folder")?)?;
    std::os::unix::fs::symlink(CERTIFICATES, openssl)?;
    for package in packages {
        let status = command::output(Command::new("dpkg-query").args(["--status", &package]))?;
        let name = package.split(':').next().unwrap_or(&package);
        stage::write(&top.join("var/lib/dpkg/status.d").join(name), &status)?;
    }
    stage::copy(Path::new("/etc/os-release"), &top.join("etc/os-release"), 0o644)?;
    stage::write(
        &top.join("etc/passwd"),
        &format!(
            "root:x:0:0:root:/:/sbin/nologin\nrelais:x:{USER}:{USER}:relais:/{STATE}:/sbin/nologin\n"
        ),
    )?;
    stage::write(&top.join("etc/group"), &format!("root:x:0:\nrelais:x:{USER}:\n"))?;
    for folder in ["dev", "etc/relais", "proc", "run", "sys", "tmp"] {
        stage::folder(&top.join(folder))?;
    }
    stage::mode(&top.join("tmp"), 0o1777)
}

fn stage_program(release: &Release, top: &Path) -> Result<()> {
    stage::copy(&release.program, &top.join("usr/bin/relais"), 0o755)?;
    let documents = top.join("usr/share/doc/relais");
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        stage::copy(&command::root().join(name), &documents.join(name), 0o644)?;
    }
    stage::copy(&release.licenses, &documents.join(licenses::NAME), 0o644)?;
    stage::folder(&top.join(STATE))?;
    stage::mode(&top.join(STATE), 0o700)
}

/// The files that `ldd` names, the loader among them.
fn libraries(linked: &str) -> impl Iterator<Item = &str> {
    linked.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

/// The package that a library is from. dpkg may know it below `/usr`, where `/lib` is a link.
fn package_of(library: &str) -> Result<String> {
    let search = |path: &str| command::output(Command::new("dpkg-query").args(["--search", path]));
    let answer = search(library).or_else(|_| search(&format!("/usr{library}")))?;
    let package = answer.split_once(": ").map(|(package, _)| package.to_owned());
    package.with_context(|| format!("dpkg does not know where {library} is from"))
}

fn inside(top: &Path, absolute: &str) -> PathBuf {
    top.join(absolute.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_have_a_file() {
        let linked = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                      \tlibssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found: Vec<&str> = libraries(linked).collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libssl.so.3", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
