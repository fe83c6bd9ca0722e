//! A RabbitMQ of our own: one node with its own data, ports and port mapper, on loopback, stopped with
//! its [`Scratch`] directory. The package is not installed: that would start a server of the machine.
//! Only Erlang is.
//!
//! Invariant: the process is started and killed only by the script `broker` of the directory, which
//! the tests may call too; the keeper of the directory ends it, whichever process started it.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    apt,
    broker_script::broker,
    certificates, command, ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

pub(crate) const NAME: &str = "RabbitMQ";
/// The variable with the URL of the broker, for the tests.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_RABBITMQ";
/// The variable that names the program with which tests kill, start and block the broker.
pub(crate) const RESTART_VARIABLE: &str = "RELAIS_TEST_RABBITMQ_RESTART";
/// The variable with the URL of the listener with TLS.
pub(crate) const SECURE_VARIABLE: &str = "RELAIS_TEST_RABBITMQ_SECURE";
/// The variable with the directory of `ca.pem`, `client.pem` and `client-key.pem`.
pub(crate) const CERTIFICATES_VARIABLE: &str = "RELAIS_TEST_RABBITMQ_CERTIFICATES";

const STOP: Stop = Stop { pid_file: "pid", signal: "KILL" };
const SETTINGS: &str = include_str!("../rabbitmq/rabbitmq.conf");
const BROKER: &str = include_str!("../rabbitmq/broker");

const PACKAGE: &str = "rabbitmq-server";
/// The packages that it needs besides itself.
const LIBRARIES: [&str; 18] = [
    "erlang-base",
    "erlang-asn1",
    "erlang-crypto",
    "erlang-eldap",
    "erlang-ftp",
    "erlang-inets",
    "erlang-mnesia",
    "erlang-os-mon",
    "erlang-parsetools",
    "erlang-public-key",
    "erlang-runtime-tools",
    "erlang-snmp",
    "erlang-ssl",
    "erlang-syntax-tools",
    "erlang-tftp",
    "erlang-tools",
    "erlang-xmerl",
    "openssl",
];
/// The folder of its programs in the package.
const PROGRAMS: &str = "usr/lib/rabbitmq/bin";
/// The folder whose only entry has the version in its name.
const LIBRARY: &str = "../lib";

/// A hint for machines on which we cannot get it.
const HINT: &str = "rabbitmq-server, erl or openssl not found: install the packages \
                    `rabbitmq-server` and `openssl`, or run as root where apt-get is";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if programs(target).is_some() || !apt::possible() {
        return Ok(());
    }
    apt::install(&LIBRARIES)?;
    apt::unpack(PACKAGE, &target.join(PACKAGE))
}

pub(crate) fn start(target: &Path) -> Result<ServerOutcome> {
    let Some(programs) = programs(target) else {
        return Ok(ServerOutcome::Missing { name: NAME, why: HINT.to_owned() });
    };
    let scratch = Scratch::of_server(STOP)?;
    let directory = scratch.path();
    fill(directory, &programs)?;
    certificates::make(directory)?;
    let mut secure = 0;
    let port = ports::first_that_works(|port| {
        secure = ports::free()?;
        listen(directory, port, secure)?;
        command::output(broker(directory).arg("start")).map(drop)
    })
    .context("RabbitMQ does not start")?;
    let variables = vec![
        (ADDRESS_VARIABLE, format!("amqp://guest:guest@127.0.0.1:{port}/%2f")),
        (RESTART_VARIABLE, directory.join("broker").display().to_string()),
        (SECURE_VARIABLE, format!("amqps://guest:guest@localhost:{secure}/%2f")),
        (CERTIFICATES_VARIABLE, directory.display().to_string()),
    ];
    let version = version(&programs);
    Ok(ServerOutcome::Running(PrivateServer { name: NAME, version, port, variables, scratch }))
}

/// Returns the folder with the programs, if everything that they need is there.
fn programs(target: &Path) -> Option<PathBuf> {
    let folders = [Path::new("/").join(PROGRAMS), target.join(PACKAGE).join(PROGRAMS)];
    let found = folders.into_iter().find(|folder| folder.join("rabbitmq-server").is_file())?;
    ["erl", "epmd", "openssl", "flock"]
        .iter()
        .all(|name| command::find(name).is_some())
        .then_some(found)
}

fn version(programs: &Path) -> String {
    let entries = fs::read_dir(programs.join(LIBRARY)).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let version = names.find_map(|name| Some(name.strip_prefix("rabbitmq_server-")?.to_owned()));
    version.unwrap_or_else(|| "of an unknown version".to_owned())
}

/// All the script `broker` needs, by names that are the same everywhere.
fn fill(directory: &Path, programs: &Path) -> Result<()> {
    symlink(programs, directory.join("bin"))?;
    fs::write(
        directory.join("plugins"),
        "[rabbitmq_auth_mechanism_ssl,rabbitmq_consistent_hash_exchange].\n",
    )?;
    // Erlang's own file; its programs refuse one that others can read.
    private(directory, ".erlang.cookie", 0o400)?.write_all(b"RELAISTESTCOOKIE")?;
    let mut script = private(directory, "broker", 0o700)?;
    script.write_all(BROKER.as_bytes()).context("cannot write the broker's script")
}

fn private(directory: &Path, name: &str, mode: u32) -> Result<fs::File> {
    let file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(directory.join(name));
    file.with_context(|| format!("cannot write {name}"))
}

fn listen(directory: &Path, port: u16, secure: u16) -> Result<()> {
    let file = |name: &str| directory.join(name).display().to_string();
    let settings = format!(
        "{SETTINGS}\nlisteners.tcp.1 = 127.0.0.1:{port}\nlisteners.ssl.1 = 127.0.0.1:{secure}\n\
         ssl_options.cacertfile = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n\
         ssl_cert_login_from = common_name\n\
         auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL\n",
        file("ca.pem"),
        file("broker.pem"),
        file("broker-key.pem")
    );
    fs::write(directory.join("rabbitmq.conf"), settings)?;
    let (mapper, distribution) = (ports::free()?, ports::free()?);
    let node = format!(
        "export RABBITMQ_NODENAME=relais-{port}@localhost\nexport ERL_EPMD_PORT={mapper}\n\
         export RABBITMQ_DIST_PORT={distribution}\n"
    );
    fs::write(directory.join("node"), node).context("cannot write the broker's settings")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::broker_script::checks;

    /// A directory whose `rabbitmq-server` is a shell script, written by another process.
    fn directory(server: &str) -> Scratch {
        let scratch = Scratch::of_server(STOP).unwrap();
        let path = scratch.path();
        fill(path, &path.join("programs")).unwrap();
        listen(path, 20_000, 20_001).unwrap();
        let mut write = Command::new("sh");
        let script = "mkdir programs && echo \"$1\" >bin/rabbitmq-server && chmod +x bin/*";
        write.current_dir(path).args(["-c", script, "write"]);
        command::output(write.arg(format!("#!/bin/sh\n{server}"))).unwrap();
        scratch
    }

    const SERVES: &str = "echo 'Server startup complete'; exec sleep 600";

    #[test]
    fn the_broker_is_killed_and_started_by_its_script() {
        checks::is_killed_and_started(&directory(SERVES));
    }

    #[test]
    fn a_broker_that_ends_is_an_error_with_what_it_said() {
        checks::reports_a_server_that_ends(&directory("echo 'port is taken'"));
    }
}
