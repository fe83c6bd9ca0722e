//! A server that a test starts for itself: with a login of its own, or to be killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use relais_testkit::connector::soon;
use tempfile::TempDir;

use super::fixture::{SERVER, server};

const PAUSE: Duration = Duration::from_millis(20);

/// A running server with its files. It ends with this value.
pub(crate) struct OwnServer {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    program: PathBuf,
    process: Option<Child>,
}

impl OwnServer {
    /// Starts a server. `{folder}` in the configuration is the folder of its files, which `fill` writes.
    pub(crate) async fn start(config: &str, fill: impl FnOnce(&Path)) -> Option<Self> {
        let program = server(&format!("{SERVER}_SERVER"))?.into();
        let folder = TempDir::new().unwrap();
        fill(folder.path());
        let config = config.replace("{folder}", &folder.path().display().to_string());
        fs::write(folder.path().join("nats.conf"), config).unwrap();
        let mut started = Self { folder, port: 0, program, process: None };
        started.run("-1").await;
        Some(started)
    }

    /// Starts it again with the same port and data.
    pub(crate) async fn run_again(&mut self) {
        let port = self.port.to_string();
        self.run(&port).await;
    }

    async fn run(&mut self, port: &str) {
        let folder = self.folder.path();
        let log = fs::File::create(folder.join("log")).unwrap();
        let process = Command::new(&self.program)
            .current_dir(folder)
            .args(["-c", "nats.conf", "-a", "127.0.0.1", "-p", port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let log = folder.join("log");
        let starting = async {
            loop {
                let said = fs::read_to_string(&log).unwrap();
                if said.contains("Server is ready") {
                    return said;
                }
                let ended = self.process.as_mut().unwrap().try_wait().unwrap();
                assert!(ended.is_none(), "it does not start: {said}");
                tokio::time::sleep(PAUSE).await;
            }
        };
        let said = soon("the server starts", starting).await;
        let line = said.lines().find(|line| line.contains("client connections on")).unwrap();
        self.port = line.rsplit_once(':').unwrap().1.parse().unwrap();
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}
