//! A schema registry of our own: Apicurio Registry, which has the API of Confluent's, from Maven Central, in
//! memory, on free loopback ports, stopped with its [`Scratch`] directory.
//!
//! Invariant: the process is started and killed only by the script `broker` of its directory, which the tests may
//! call too; the keeper of the directory ends it, whichever process started it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    broker_script::{self, broker},
    certificates, command,
    maven::{self, MavenBroker, MavenForm},
    ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

/// The variables with the URL of the API, the program that kills and starts the registry, the URL with TLS, and
/// the directory of `ca.pem`.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_REGISTRY";
pub(crate) const RESTART_VARIABLE: &str = "RELAIS_TEST_REGISTRY_RESTART";
pub(crate) const SECURE_VARIABLE: &str = "RELAIS_TEST_REGISTRY_SECURE";
pub(crate) const CERTIFICATES_VARIABLE: &str = "RELAIS_TEST_REGISTRY_CERTIFICATES";

const STOP: Stop = Stop { pid_file: "pid", signal: "KILL" };
/// The path of the API of Confluent.
const API: &str = "apis/ccompat/v7";
/// A part of the line that it prints when it serves.
const READY: &str = "Listening on: http";

pub(crate) const REGISTRY: MavenBroker = MavenBroker {
    name: "Apicurio Registry",
    folder: "apicurio",
    pom: include_str!("../apicurio/pom.xml"),
    form: MavenForm::Archive,
};

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    REGISTRY.install_if_missing(target)
}

pub(crate) fn start(target: &Path) -> Result<ServerOutcome> {
    let name = REGISTRY.name;
    let missing = |why| Ok(ServerOutcome::Missing { name, why });
    let Some(java) = maven::java() else { return missing(maven::HINT.to_owned()) };
    if command::find("openssl").is_none() {
        return missing("install the package `openssl`".to_owned());
    }
    let jars = match REGISTRY.jars(target, &java) {
        Ok(jars) => jars,
        Err(error) => return missing(format!("{error:#}")),
    };
    let scratch = Scratch::of_server(STOP)?;
    let directory = scratch.path();
    broker_script::fill(directory, &java, &jars, READY)?;
    certificates::make(directory)?;
    let mut secure = 0;
    let port = ports::first_that_works(|port| {
        secure = ports::free()?;
        broker_script::arguments(directory, &arguments(port, secure))?;
        command::output(broker(directory).arg("start")).map(drop)
    })
    .with_context(|| format!("{name} does not start"))?;
    let variables = vec![
        (ADDRESS_VARIABLE, format!("http://127.0.0.1:{port}/{API}")),
        (RESTART_VARIABLE, directory.join("broker").display().to_string()),
        (SECURE_VARIABLE, format!("https://localhost:{secure}/{API}")),
        (CERTIFICATES_VARIABLE, directory.display().to_string()),
    ];
    let version = REGISTRY.version().to_owned();
    Ok(ServerOutcome::Running(PrivateServer { name, version, port, variables, scratch }))
}

/// The arguments of Java.
fn arguments(port: u16, secure: u16) -> Vec<String> {
    let version = REGISTRY.version();
    vec![
        "-Dquarkus.http.host=127.0.0.1".to_owned(),
        format!("-Dquarkus.http.port={port}"),
        format!("-Dquarkus.http.ssl-port={secure}"),
        "-Dquarkus.http.ssl.certificate.files=broker.pem".to_owned(),
        "-Dquarkus.http.ssl.certificate.key-files=broker-key.pem".to_owned(),
        "-Dquarkus.http.access-log.enabled=false".to_owned(),
        "-jar".to_owned(),
        format!("jars/apicurio-registry-app-{version}-runner.jar"),
    ]
}
