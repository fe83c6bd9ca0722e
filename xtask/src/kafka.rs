//! An Apache Kafka of our own: one process, broker and controller, from Maven Central, on free
//! loopback ports, stopped with its [`Scratch`] directory.
//!
//! Invariant: the process is started and killed only by the script `broker` of the directory, which
//! the tests may call too; the keeper of the directory ends it, whichever process started it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    broker_script::{self, broker},
    command,
    maven::{self, MavenBroker, MavenForm},
    ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

pub(crate) const NAME: &str = "Apache Kafka";
/// The variable with the address of the broker, for the tests.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_KAFKA";
/// The variable that names the program with which tests kill and start the broker.
pub(crate) const RESTART_VARIABLE: &str = "RELAIS_TEST_KAFKA_RESTART";

/// The variables that name the listener with TLS and passwords, and the certificate it shows.
pub(crate) const SECURE_VARIABLE: &str = "RELAIS_TEST_KAFKA_SECURE";
pub(crate) const CERTIFICATE_VARIABLE: &str = "RELAIS_TEST_KAFKA_CERTIFICATE";
/// The variable that names a listener, and the address that it gives to clients: a test puts its proxy there.
pub(crate) const PROXIED_VARIABLE: &str = "RELAIS_TEST_KAFKA_PROXIED";

const STOP: Stop = Stop { pid_file: "pid", signal: "KILL" };
const SETTINGS: &str = include_str!("../kafka/server.properties");
const LOGGING: &str = include_str!("../kafka/log4j2.properties");

pub(crate) const BROKER: MavenBroker = MavenBroker {
    name: NAME,
    folder: "kafka",
    pom: include_str!("../kafka/pom.xml"),
    form: MavenForm::Jars,
};
/// The arguments of Java, and a part of the line that the broker prints when it serves.
const ARGUMENTS: [&str; 5] = [
    "-Dlog4j2.configurationFile=log4j2.properties",
    "-cp",
    "jars/*",
    "kafka.Kafka",
    "server.properties",
];
const READY: &str = "Kafka Server started";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    BROKER.install_if_missing(target)
}

pub(crate) fn start(target: &Path) -> Result<ServerOutcome> {
    let Some(java) = maven::java() else {
        return Ok(ServerOutcome::Missing { name: NAME, why: maven::HINT.to_owned() });
    };
    let jars = match BROKER.jars(target, &java) {
        Ok(jars) => jars,
        Err(error) => return Ok(ServerOutcome::Missing { name: NAME, why: format!("{error:#}") }),
    };
    let scratch = Scratch::of_server(STOP)?;
    let directory = scratch.path();
    fill(directory, &java, &jars)?;
    certify(directory, &java)?;
    let mut others = BrokerPorts::default();
    let port = ports::first_that_works(|port| {
        others = BrokerPorts::free()?;
        listen(directory, port, &others)?;
        format_once(directory)?;
        command::output(broker(directory).arg("start")).map(drop)
    })
    .context("Apache Kafka does not start")?;
    let file = |name: &str| directory.join(name).display().to_string();
    let variables = vec![
        (ADDRESS_VARIABLE, format!("127.0.0.1:{port}")),
        (RESTART_VARIABLE, file("broker")),
        (SECURE_VARIABLE, format!("127.0.0.1:{}", others.secure)),
        (PROXIED_VARIABLE, format!("127.0.0.1:{},127.0.0.1:{}", others.proxied, others.proxy)),
        (CERTIFICATE_VARIABLE, file("broker.pem")),
    ];
    let version = BROKER.version().to_owned();
    Ok(ServerOutcome::Running(PrivateServer { name: NAME, version, port, variables, scratch }))
}

fn fill(directory: &Path, java: &Path, jars: &Path) -> Result<()> {
    fs::write(directory.join("log4j2.properties"), LOGGING)?;
    broker_script::fill(directory, java, jars, READY)?;
    broker_script::arguments(directory, &ARGUMENTS.map(str::to_owned))
}

/// A certificate that signs itself, for the listener with TLS. Java brings the program that makes it.
fn certify(directory: &Path, java: &Path) -> Result<()> {
    let java = fs::canonicalize(java).context("cannot find where Java lives")?;
    let keytool = |arguments: &str| {
        let mut keytool = Command::new(java.with_file_name("keytool"));
        keytool.current_dir(directory).stdin(Stdio::null()).args(arguments.split(' '));
        keytool.args(["-alias", "broker", "-keystore", "broker.p12"]);
        command::output(keytool.args(["-storetype", "PKCS12", "-storepass", "relais-password"]))
    };
    keytool("-genkeypair -keyalg EC -dname CN=127.0.0.1 -ext san=ip:127.0.0.1 -validity 3650")?;
    keytool("-exportcert -rfc -file broker.pem").map(drop)
}

/// The ports of a broker besides its own.
#[derive(Debug, Default)]
struct BrokerPorts {
    controller: u16,
    secure: u16,
    /// The listener that names [`BrokerPorts::proxy`] to its clients.
    proxied: u16,
    proxy: u16,
}

impl BrokerPorts {
    fn free() -> Result<Self> {
        let free = ports::free;
        Ok(Self { controller: free()?, secure: free()?, proxied: free()?, proxy: free()? })
    }
}

fn listen(directory: &Path, broker: u16, others: &BrokerPorts) -> Result<()> {
    let BrokerPorts { controller, secure, proxied, proxy } = others;
    let both = format!("BROKER://127.0.0.1:{broker},SECURE://127.0.0.1:{secure}");
    let listeners = format!(
        "\nlisteners={both},CONTROLLER://127.0.0.1:{controller},PROXIED://127.0.0.1:{proxied}\n\
         advertised.listeners={both},PROXIED://127.0.0.1:{proxy}\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n"
    );
    fs::write(directory.join("server.properties"), SETTINGS.to_owned() + &listeners)
        .context("cannot write the broker's settings")
}

/// Makes the data directory. Its name is the cluster's: no two clusters have the same.
fn format_once(directory: &Path) -> Result<()> {
    if directory.join("data").exists() {
        return Ok(());
    }
    let cluster = directory.file_name().context("a scratch directory has a name")?;
    let mut format = Command::new(directory.join("java"));
    format.current_dir(directory).stdin(Stdio::null());
    format.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", "jars/*"]);
    format.args(["kafka.tools.StorageTool", "format", "--config", "server.properties"]);
    command::output(format.arg("--cluster-id").arg(cluster)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker_script::checks;

    /// A directory whose `java` is a shell script, written by another process (see [`broker`]).
    fn directory(java: &str) -> Scratch {
        let scratch = Scratch::of_server(STOP).unwrap();
        let path = scratch.path();
        fill(path, &path.join("fake"), path).unwrap();
        let mut write = Command::new("sh");
        write.current_dir(path).args(["-c", "echo \"$1\" >fake && chmod +x fake", "write"]);
        command::output(write.arg(format!("#!/bin/sh\n{java}"))).unwrap();
        scratch
    }

    const SERVES: &str = "echo 'Kafka Server started'; exec sleep 600";

    #[test]
    fn the_broker_is_killed_and_started_by_its_script() {
        checks::is_killed_and_started(&directory(SERVES));
    }

    #[test]
    fn a_broker_that_ends_is_an_error_with_what_it_said() {
        checks::reports_a_server_that_ends(&directory("echo 'port is taken'"));
    }

    #[test]
    fn nothing_is_started_in_a_directory_about_to_go() {
        let scratch = directory(SERVES);
        fs::write(scratch.path().join("closing"), "").unwrap();
        checks::call(&scratch, Some("start")).unwrap_err();
        assert_eq!(checks::pid(&scratch), None);
    }
}
