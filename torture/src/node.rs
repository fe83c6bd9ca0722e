//! One process of a program: started, stopped for a while, killed, asked to end.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Longest start and end of a process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which its log is read.
const GLANCE: Duration = Duration::from_millis(20);

/// The variable with which libfaketime gets its offset.
const SHIFT: &str = "FAKETIME";

/// A program that runs until it is ended.
#[derive(Clone, Debug)]
pub(crate) struct NodeProgram {
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// It is started here, beside its settings; logs go here too.
    pub(crate) folder: PathBuf,
    /// Its environment beside ours.
    pub(crate) env: Vec<(String, String)>,
}

/// A process of it.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    child: Child,
    log: PathBuf,
}

impl NodeProgram {
    /// `relais run` with the `relais.toml` of a folder, and a planted bug with its database, if any.
    pub(crate) fn relais(path: &Path, folder: &Path, planted: Option<(&str, String)>) -> Self {
        let variables = planted.map(|(bug, database)| {
            let bug = ("RELAIS_PLANTED_BUG".to_owned(), bug.to_owned());
            [bug, ("RELAIS_PLANTED_DATABASE".to_owned(), database)]
        });
        Self {
            path: path.to_owned(),
            args: ["run", "--log", "json"].map(str::to_owned).to_vec(),
            folder: folder.to_owned(),
            env: variables.into_iter().flatten().collect(),
        }
    }

    /// The same with a clock that is a day ahead; the library between it and the system sees to that.
    /// Only the time of day is: no machine's steady clock ever jumps.
    pub(crate) fn a_day_ahead(mut self, library: &Path) -> Self {
        let library = library.display().to_string();
        let shift =
            [("LD_PRELOAD", &*library), (SHIFT, "+1d"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        self.env.extend(shift.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.env.iter().any(|(name, _)| name == SHIFT)
    }

    /// Runs a command to its end; it must succeed.
    pub(crate) async fn call(&self, args: &[&str]) -> Result<()> {
        let output = self.command(args).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{} {}: {said}", self.path.display(), args.join(" "));
        Ok(())
    }

    pub(crate) fn start(&self, name: &str) -> Result<NodeProcess> {
        let log = self.folder.join(format!("{name}.log"));
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let child = self
            .command(&args)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        Ok(NodeProcess { child, log })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).args(args).stdin(Stdio::null()).kill_on_drop(true);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl NodeProcess {
    /// Waits until it serves, and says where it takes posts.
    pub(crate) async fn ready(&mut self) -> Result<SocketAddr> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(address) = self.address("POST http://", '/') {
                return Ok(address);
            }
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("it ended by itself ({status}):\n{}", self.said());
            }
            ensure!(tokio::time::Instant::now() < deadline, "it does not start:\n{}", self.said());
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Returns the number of its settlements that the fence refused, from its own metrics.
    pub(crate) async fn refusals(&self, http: &reqwest::Client) -> Option<u64> {
        let admin = self.address("admin http://", '"')?;
        let page = http.get(format!("http://{admin}/metrics")).send().await.ok()?;
        let page = page.text().await.ok()?;
        let lines = page.lines().filter(|line| line.starts_with("relais_fence_refusals_total"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        // A counter is a whole number, written as any number is.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        Some(counts.sum::<f64>() as u64)
    }

    /// Ends it as a power cut would.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// It stands still, as if its machine did, and does not know.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.with_context(|| format!("it does not end:\n{}", self.said()))??;
        ensure!(status.success(), "it ended with {status}:\n{}", self.said());
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().context("it has ended")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("a process id")?;
        Ok(kill_process(pid, signal)?)
    }

    fn address(&self, words: &str, end: char) -> Option<SocketAddr> {
        let said = self.said();
        let behind = said.split_once(words)?.1;
        behind.split(end).next()?.parse().ok()
    }

    fn said(&self) -> String {
        read(&self.log)
    }
}

/// The last lines of each log, for the report of a failure.
pub(crate) fn last_words(folder: &Path) -> String {
    const LINES: usize = 15;
    let logs = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut logs: Vec<_> = logs
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    logs.sort_unstable();
    let mut text = String::new();
    for (_, log) in logs.iter().rev().take(4) {
        let said = read(log);
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        text.push_str(&format!("--- {}\n{last}\n", log.display()));
    }
    text
}

fn read(log: &Path) -> String {
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
