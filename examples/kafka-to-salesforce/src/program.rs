//! The program `relais` with the settings of this example, as a process that can be killed.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::events::Feed;

const SETTINGS: &str = include_str!("../relais.toml");
/// The source where there is no Kafka.
const HTTP_SOURCE: &str = r#"[[source]]
name = "families"
kind = "http"
listen = "127.0.0.1:0"
source_system = "ihub"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "payload:/familyId"

"#;

pub(crate) struct Program {
    file: PathBuf,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Program {
    /// Writes the settings and finds the program, or builds it.
    pub(crate) async fn new(folder: &Path, feed: &Feed, org: &str) -> anyhow::Result<Self> {
        let mut variables = vec![("SALESFORCE_URL", org.to_owned())];
        let settings = match feed {
            Feed::Http => over_http()?,
            Feed::Kafka(topic) => {
                variables.push(("KAFKA_BROKERS", topic.brokers.clone()));
                variables.push(("TOPIC", topic.name.clone()));
                SETTINGS.to_owned()
            }
        };
        std::fs::write(folder.join("relais.toml"), settings)?;
        // Where cargo puts all programs of this workspace.
        let file = std::env::current_exe()?.with_file_name("relais");
        let program = Self { file, folder: folder.to_owned(), variables };
        if program.check().await.is_err() {
            build(feed).await?;
            program.check().await?;
        }
        Ok(program)
    }

    /// Returns true if it exists and accepts the configuration; a build without Kafka does not.
    async fn check(&self) -> anyhow::Result<()> {
        let output = self.command(&["check"]).output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "relais check: {said}");
        Ok(())
    }

    pub(crate) async fn start(&self) -> anyhow::Result<Started> {
        let mut child = self.command(&["run"]).stderr(Stdio::piped()).spawn()?;
        let log = child.stderr.take().context("it has a log")?;
        let mut lines = BufReader::new(log).lines();
        let (mut hook, mut said) = (None, Vec::new());
        while let Some(line) = lines.next_line().await? {
            let address = line.split("POST http://").nth(1).and_then(|rest| rest.split('/').next());
            hook = hook.or(address.and_then(|address| address.parse().ok()));
            if line.contains("running") {
                // It must never wait for a reader.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Started { child, hook });
            }
            said.push(line);
        }
        bail!("relais did not start:\n{}", said.join("\n"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.file);
        command.args(args).current_dir(&self.folder).envs(self.variables.iter().cloned());
        command.env_remove("RELAIS_CONFIG").stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

pub(crate) struct Started {
    child: Child,
    hook: Option<SocketAddr>,
}

impl Started {
    /// Returns the address of its HTTP source.
    pub(crate) fn hook(&self) -> Option<SocketAddr> {
        self.hook
    }

    /// Ends it as a power cut would.
    pub(crate) async fn kill(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }
}

/// The settings with the other source.
fn over_http() -> anyhow::Result<String> {
    let (before, rest) = SETTINGS.split_once("[[source]]").context("there is a source")?;
    let (_, after) = rest.split_once("[[route]]").context("there is a route")?;
    Ok(format!("{before}{HTTP_SOURCE}[[route]]{after}"))
}

async fn build(feed: &Feed) -> anyhow::Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "-p", "relais-cli"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if matches!(feed, Feed::Kafka(_)) {
        cargo.args(["--features", "kafka"]);
    }
    println!("building the program relais …");
    ensure!(cargo.status().await?.success(), "relais cannot be built");
    Ok(())
}
