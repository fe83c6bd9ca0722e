//! Brokers of AMQP 1.0 of our own: ActiveMQ Artemis and Qpid Broker-J, from Maven Central, on free
//! loopback ports, stopped with their [`Scratch`] directories.
//!
//! Invariant: a process is started and killed only by the script `broker` of its directory, which the
//! tests may call too; the keeper of the directory ends it, whichever process started it.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    broker_script::{self, broker},
    certificates, command,
    maven::{self, MavenBroker, MavenForm},
    ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

const STOP: Stop = Stop { pid_file: "pid", signal: "KILL" };

/// The variable with the URL of Qpid's listener without logins.
pub(crate) const OPEN_VARIABLE: &str = "RELAIS_TEST_QPID_OPEN";

/// One of the brokers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmqpBroker {
    pub(crate) jars: MavenBroker,
    /// The variables with its URL, the program that kills and starts it, the URL of the listener with
    /// TLS, and the directory of `ca.pem`, `client.pem` and `client-key.pem`.
    pub(crate) variables: [&'static str; 4],
    /// Files of its directory.
    files: &'static [(&'static str, &'static str)],
    /// A part of the line that it prints when it serves.
    ready: &'static str,
    /// Arguments of Java. Words in braces are replaced.
    arguments: &'static [&'static str],
}

pub(crate) const ALL: [AmqpBroker; 2] = [ARTEMIS, QPID];

pub(crate) const ARTEMIS: AmqpBroker = AmqpBroker {
    jars: MavenBroker {
        name: "ActiveMQ Artemis",
        folder: "artemis",
        pom: include_str!("../artemis/pom.xml"),
        form: MavenForm::Jars,
    },
    variables: [
        "RELAIS_TEST_ARTEMIS",
        "RELAIS_TEST_ARTEMIS_RESTART",
        "RELAIS_TEST_ARTEMIS_SECURE",
        "RELAIS_TEST_ARTEMIS_CERTIFICATES",
    ],
    files: &[
        ("etc/broker.xml", include_str!("../artemis/broker.xml")),
        ("login.config", include_str!("../artemis/login.config")),
        ("users.properties", "guest=guest\n"),
        ("roles.properties", "users=guest\n"),
        ("certificates.properties", "guest=CN=guest\n"),
    ],
    ready: "AMQ221007",
    arguments: &[
        "-Djava.security.auth.login.config={directory}/login.config",
        "-cp",
        ".:jars/*",
        "org.apache.activemq.artemis.core.server.embedded.Main",
        ".",
    ],
};

pub(crate) const QPID: AmqpBroker = AmqpBroker {
    jars: MavenBroker {
        name: "Qpid Broker-J",
        folder: "qpid",
        pom: include_str!("../qpid/pom.xml"),
        form: MavenForm::Jars,
    },
    variables: [
        "RELAIS_TEST_QPID",
        "RELAIS_TEST_QPID_RESTART",
        "RELAIS_TEST_QPID_SECURE",
        "RELAIS_TEST_QPID_CERTIFICATES",
    ],
    files: &[
        ("config.json", include_str!("../qpid/config.json")),
        ("host.json", include_str!("../qpid/host.json")),
    ],
    ready: "BRK-1004",
    arguments: &[
        "-DQPID_WORK={directory}/data",
        "-Dqpid.max_message_size=1048576",
        "-Drelais.host=file:{directory}/host.json",
        "-cp",
        "jars/*",
        "org.apache.qpid.server.Main",
        "-icp",
        "config.json",
    ],
};

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    ALL.iter().try_for_each(|one| one.jars.install_if_missing(target))
}

pub(crate) fn start(one: AmqpBroker, target: &Path) -> Result<ServerOutcome> {
    let name = one.jars.name;
    let missing = |why| Ok(ServerOutcome::Missing { name, why });
    let Some(java) = maven::java() else { return missing(maven::HINT.to_owned()) };
    if command::find("openssl").is_none() {
        return missing("install the package `openssl`".to_owned());
    }
    let jars = match one.jars.jars(target, &java) {
        Ok(jars) => jars,
        Err(error) => return missing(format!("{error:#}")),
    };
    let scratch = Scratch::of_server(STOP)?;
    let directory = scratch.path();
    broker_script::fill(directory, &java, &jars, one.ready)?;
    certificates::make(directory)?;
    certificates::for_java(directory, &java)?;
    let (mut secure, mut open) = (0, 0);
    let port = ports::first_that_works(|port| {
        (secure, open) = (ports::free()?, ports::free()?);
        listen(&one, directory, [port, secure, open])?;
        command::output(broker(directory).arg("start")).map(drop)
    })
    .with_context(|| format!("{name} does not start"))?;
    let values = [
        format!("amqp://guest:guest@127.0.0.1:{port}"),
        directory.join("broker").display().to_string(),
        format!("amqps://localhost:{secure}"),
        directory.display().to_string(),
    ];
    let mut variables: Vec<_> = one.variables.into_iter().zip(values).collect();
    if name == QPID.jars.name {
        variables.push((OPEN_VARIABLE, format!("amqp://127.0.0.1:{open}")));
    }
    let version = one.jars.version().to_owned();
    Ok(ServerOutcome::Running(PrivateServer { name, version, port, variables, scratch }))
}

/// Writes the files with the ports, and the arguments.
fn listen(one: &AmqpBroker, directory: &Path, ports: [u16; 3]) -> Result<()> {
    let [port, secure, open] = ports.map(|port| port.to_string());
    let place = directory.display().to_string();
    let filled = |text: &str| {
        text.replace("{port}", &port)
            .replace("{secure}", &secure)
            .replace("{open}", &open)
            .replace("{directory}", &place)
    };
    fs::create_dir_all(directory.join("etc"))?;
    for (name, text) in one.files {
        fs::write(directory.join(name), filled(text))
            .with_context(|| format!("cannot write {name}"))?;
    }
    // Of a start that failed: Qpid keeps the ports there.
    let data = directory.join("data");
    if data.exists() {
        fs::remove_dir_all(data)?;
    }
    let arguments: Vec<String> = one.arguments.iter().map(|one| filled(one)).collect();
    broker_script::arguments(directory, &arguments)
}
