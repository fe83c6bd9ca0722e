//! One `relais run` with its log in a file, so that it never waits for a reader; and one that is killed
//! again and again.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{Site, get};

/// Interval of checks of a process, and of the whole, long enough not to disturb it.
const GLANCE: Duration = Duration::from_millis(100);
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Lifetimes of a working process, in turn; longer from round to round, so that a slow
/// machine gets done too.
const LIVES_MS: [u64; 5] = [1_000, 100, 5_000, 0, 3_000];

#[derive(Debug, Default)]
pub(crate) struct Kills {
    /// Of a process that was at work.
    pub(crate) at_work: usize,
    pub(crate) idle: usize,
}

/// Starts a process, lets it work, kills it, until all is done.
pub(crate) fn kill_until(
    site: &Site,
    mut is_at_work: impl FnMut(&mut Node) -> bool,
    mut done: impl FnMut() -> bool,
) -> Kills {
    let mut kills = Kills::default();
    let mut looked = Instant::now();
    loop {
        let mut node = Node::start(site, &format!("victim-{}", kills.at_work + kills.idle));
        let mut end: Option<Instant> = None;
        let finished = loop {
            if looked.elapsed() > CHECK_EVERY {
                looked = Instant::now();
                if done() {
                    break true;
                }
            }
            if end.is_none() && is_at_work(&mut node) {
                let (round, turn) =
                    (kills.at_work / LIVES_MS.len(), kills.at_work % LIVES_MS.len());
                let life = LIVES_MS[turn] * (1 + u64::try_from(round).unwrap());
                end = Some(Instant::now() + Duration::from_millis(life));
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                break false;
            }
            thread::sleep(GLANCE);
        };
        node.kill();
        match end {
            Some(_) => kills.at_work += 1,
            None => kills.idle += 1,
        }
        if finished {
            return kills;
        }
    }
}

pub(crate) struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    pub(crate) fn start(site: &Site, name: &str) -> Self {
        Self::start_with(site, name, &[])
    }

    /// The same with these in its environment.
    pub(crate) fn start_with(site: &Site, name: &str, variables: &[(&str, &str)]) -> Self {
        let log = site.path(&format!("{name}.log"));
        let child = site
            .command(&["run", "--log", "json"])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Returns the number of records stored or recognized so far; `None` while it is starting.
    pub(crate) fn received(&mut self) -> u64 {
        self.assert_alive();
        let Some(admin) = self.admin() else { return 0 };
        let (_, metrics) = get(admin, "/metrics");
        let counts = metrics.lines().filter(|line| line.starts_with("relais_received_total{"));
        counts.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum()
    }

    pub(crate) fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended by itself: {ended:?}\n{}", self.said());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address of a source; `None` while it is starting.
    pub(crate) fn address(&self, source: &str) -> Option<SocketAddr> {
        let lines = self.lines();
        let line = lines.iter().find(|line| line["source"] == source)?;
        let text = line["message"].as_str()?.split_once("POST http://")?.1;
        text.split('/').next()?.parse().ok()
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
        let last = lines.iter().rev().find(|line| line["message"] == "inbox totals");
        last.and_then(|line| line["duplicates"].as_u64()).expect("it says what it did")
    }

    /// Its log, for the report of a failure.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn admin(&self) -> Option<SocketAddr> {
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
