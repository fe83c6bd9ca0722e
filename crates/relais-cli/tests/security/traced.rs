//! `relais run` with a verbose log, which goes to a file.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{support::Site, wait_for};

pub(crate) struct Traced {
    child: Child,
    log: PathBuf,
}

impl Traced {
    /// Starts it and waits until it runs.
    pub(crate) fn start(site: &Site, format: &str, variables: &[(&str, &str)]) -> Self {
        let log = site.path("log");
        let mut command = site.command(&["run", "--log", format]);
        command.envs(variables.iter().copied()).stdout(Stdio::null());
        let mut child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        wait_for("relais to run", || {
            let said = fs::read_to_string(&log).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "it ended: {said}");
            let runs = ["INFO running ", "\"message\":\"running\""];
            runs.iter().any(|words| said.contains(words)).then_some(())
        });
        Self { child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.address(|line| line.contains("admin http://"))
    }

    pub(crate) fn source(&self, name: &str) -> SocketAddr {
        let path = format!("/{name}");
        self.address(|line| line.contains("POST http://") && line.contains(&path))
    }

    fn address(&self, is_it: impl Fn(&str) -> bool) -> SocketAddr {
        let said = self.said();
        let line = said.lines().find(|line| is_it(line)).expect("it is logged");
        let (_, from) = line.split_once("http://").unwrap();
        from.split(['/', '"', ' ']).next().unwrap().parse().unwrap()
    }

    /// Asks it to end, and gives all it has said.
    pub(crate) fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
        self.said()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
