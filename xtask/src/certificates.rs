//! Certificates for the listeners with TLS of private brokers.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Result;

use crate::command;

/// The password of the key stores of Java.
pub(crate) const STORE_PASSWORD: &str = "relais-password";

/// Makes an authority with a certificate of the broker and one of a client.
pub(crate) fn make(directory: &Path) -> Result<()> {
    let openssl = |arguments: &str| run(directory, Path::new("openssl"), arguments);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc";
    openssl(&format!(
        "req -x509 {key} -keyout ca-key.pem -out ca.pem -days 3650 -subj /CN=relais-test-ca \
         -addext basicConstraints=critical,CA:TRUE"
    ))?;
    for (name, subject, extension) in [
        ("broker", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "/CN=guest", "extendedKeyUsage=clientAuth"),
    ] {
        openssl(&format!(
            "req -x509 {key} -keyout {name}-key.pem -out {name}.pem -days 3650 -subj {subject} \
             -CA ca.pem -CAkey ca-key.pem -addext {extension} \
             -addext basicConstraints=critical,CA:FALSE"
        ))?;
    }
    Ok(())
}

/// Puts the certificates of [`make`] into the files of Java: `broker.p12` and `trust.p12`.
pub(crate) fn for_java(directory: &Path, java: &Path) -> Result<()> {
    run(
        directory,
        Path::new("openssl"),
        &format!(
            "pkcs12 -export -in broker.pem -inkey broker-key.pem -out broker.p12 \
             -passout pass:{STORE_PASSWORD}"
        ),
    )?;
    let keytool = std::fs::canonicalize(java)?.with_file_name("keytool");
    run(
        directory,
        &keytool,
        &format!(
            "-importcert -noprompt -file ca.pem -alias ca -keystore trust.p12 -storetype PKCS12 \
             -storepass {STORE_PASSWORD}"
        ),
    )
}

fn run(directory: &Path, program: &Path, arguments: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).args(arguments.split(' '));
    command::output(&mut command).map(drop)
}
