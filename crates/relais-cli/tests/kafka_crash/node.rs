//! One `relais run` with its log in a file, so that it never waits for a reader.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::support::{Site, get};

pub(crate) struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    pub(crate) fn start(site: &Site, name: &str) -> Self {
        let log = site.path(&format!("{name}.log"));
        let child = site
            .command(&["run", "--log", "json"])
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// How many records it has stored or recognised so far; none while it is starting.
    pub(crate) fn received(&mut self) -> u64 {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended by itself: {ended:?}\n{}", self.said());
        let Some(admin) = self.admin() else { return 0 };
        let (_, metrics) = get(admin, "/metrics");
        let counts = metrics.lines().filter(|line| line.starts_with("relais_received_total{"));
        counts.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and gives how many duplicates it saw.
    pub(crate) fn stop(mut self) -> u64 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.said());
        let lines = self.lines();
        let last = lines.iter().rev().find(|line| line["message"] == "inbox");
        last.and_then(|line| line["duplicates"].as_u64()).expect("it says what it did")
    }

    /// Its log, for the report of a failure.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn admin(&self) -> Option<SocketAddr> {
        self.lines()
            .iter()
            .find_map(|line| line["message"].as_str()?.strip_prefix("admin http://")?.parse().ok())
    }

    fn lines(&self) -> Vec<Value> {
        self.said().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Of no use after `kill` and `stop`; a failing test leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
