//! One cycle: an own store, and a program that aborts at a point, once. The harness starts it again, without the
//! fault, after its leases have expired.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    org::Base,
    support::{Said, Site, postgres::PostgresSchema},
};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_WITH_BUG: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(30);
/// The signal of an aborted process.
const SIGABRT: i32 = 6;

/// The state that is not final, by name.
const OPEN: &str = "\
    SELECT 'inbox' FROM relais_inbox WHERE status IN ('RECEIVED', 'RETRY') \
    UNION ALL SELECT 'outbox' FROM relais_outbox AS o WHERE status = 'PENDING' AND NOT EXISTS \
        (SELECT 1 FROM relais_parked_key AS p WHERE p.msg_key = coalesce(o.msg_key, o.aggregate_id)) \
    UNION ALL SELECT 'timer' FROM relais_timer \
    UNION ALL SELECT 'bulk job' FROM relais_bulk_job WHERE finished_at IS NULL";
/// Work that no process takes over before a lease expires.
const HELD: &str = "\
    SELECT 'lane of ' || scope FROM relais_lane WHERE owner IS NOT NULL \
    UNION ALL SELECT 'worker in ' || scope FROM relais_worker \
    UNION ALL SELECT 'job of ' || destination FROM relais_bulk_job \
        WHERE owner IS NOT NULL AND finished_at IS NULL";
/// Expires the leases of a killed process.
const TIME_PASSES: &str = "\
    UPDATE relais_lease SET lease_until = '2000-01-01T00:00:00.000Z'; \
    UPDATE relais_bulk_job SET lease_until = '2000-01-01T00:00:00.000Z' WHERE finished_at IS NULL; \
    DELETE FROM relais_worker;";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

/// The k-th hit of a point, over all processes since the last crash.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) point: String,
    pub(crate) nth: usize,
}

/// A program that runs until it is stopped.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    Relais,
    /// A test of this program, which is a service with handlers.
    Service(&'static str),
}

pub(crate) struct CrashHarness {
    pub(crate) base: Base,
    pub(crate) site: Site,
    program: Program,
    /// Those to come, the next one first.
    faults: VecDeque<Fault>,
    bug: Option<&'static str>,
    pub(crate) crashes: usize,
    /// Hits up to the last crash.
    hits_before: BTreeMap<String, usize>,
    node: Option<Child>,
    lives: usize,
}

impl CrashHarness {
    pub(crate) fn new(database: Database, faults: impl IntoIterator<Item = Fault>) -> Self {
        let site = Site::new();
        let base = match database {
            Database::Sqlite => Base::Sqlite(site.path("relais.db")),
            Database::Postgres => Base::Postgres(PostgresSchema::new().expect("it was asked for")),
        };
        Self {
            base,
            site,
            program: Program::Relais,
            faults: faults.into_iter().collect(),
            bug: None,
            crashes: 0,
            hits_before: BTreeMap::new(),
            node: None,
            lives: 0,
        }
    }

    /// Runs the program with a store that breaks one rule of its contract.
    pub(crate) fn plant(&mut self, bug: &'static str) {
        self.bug = Some(bug);
        self.program = Program::Service("the_program_with_a_planted_bug");
    }

    /// The settings, with the store before them.
    pub(crate) fn settings(&self, text: &str) {
        let url = self.base.url();
        self.site.write(
            "relais.toml",
            &format!("[store]\nurl = \"{url}\"\n[lanes]\nlease = \"2s\"\n{text}"),
        );
    }

    /// From now on this is what runs.
    pub(crate) fn play(&mut self, program: Program) {
        self.program = program;
    }

    /// Waits until a condition holds, with the program running.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let patience = if self.bug.is_some() { PATIENCE_WITH_BUG } else { PATIENCE };
        let give_up = Instant::now() + patience;
        loop {
            self.mind();
            if done(self) {
                return;
            }
            assert!(Instant::now() < give_up, "{what}: not in time\n{}", self.said());
            thread::sleep(GLANCE);
        }
    }

    /// Posts until a process acknowledges it.
    pub(crate) fn post(&mut self, headers: &[(&str, &str)], body: impl AsRef<[u8]>) {
        self.until("a message is taken", |harness| {
            let Some(address) = harness.address() else { return false };
            matches!(try_post(address, headers, body.as_ref()), Ok(202))
        });
    }

    /// Returns true if the store has no open work.
    pub(crate) fn drain(&mut self) {
        self.until("all is done", |harness| harness.base.texts(OPEN).is_empty());
    }

    /// Runs a command; if it aborts, once more.
    pub(crate) fn relais(&mut self, args: &[&str]) -> Said {
        for _ in 0..=self.faults.len() {
            let mut command = self.site.command(args);
            command.envs(self.variables());
            let output = command.output().unwrap();
            if self.has_aborted(output.status) {
                continue;
            }
            return Said::from(output);
        }
        panic!("{args:?} aborts without a fault")
    }

    /// Asks the program to stop; nothing may be left open, nor held.
    pub(crate) fn finish(&mut self) {
        self.stop();
        let open = self.base.texts(OPEN);
        assert!(open.is_empty(), "left over: {open:?}\n{}", self.said());
        // Lanes that were taken over after a crash and not read yet are not given back, but run out.
        if self.crashes == 0 {
            let held = self.base.texts(HELD);
            assert!(held.is_empty(), "held: {held:?}\n{}", self.said());
        }
        if let Base::Sqlite(_) = self.base {
            assert_eq!(self.base.texts("PRAGMA integrity_check"), ["ok"]);
        }
    }

    pub(crate) fn stop(&mut self) {
        loop {
            self.mind();
            // A program that has just begun does not listen to signals yet.
            self.until("it runs", |harness| harness.said().contains("\"message\":\"running\""));
            let Some(mut node) = self.node.take() else { continue };
            let pid = node.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
            let status = node.wait().unwrap();
            if !self.has_aborted(status) {
                assert!(status.success(), "{status}\n{}", self.said());
                return;
            }
        }
    }

    /// Returns the number of hits of each point.
    pub(crate) fn hits(&self) -> BTreeMap<String, usize> {
        let text = fs::read_to_string(self.site.path("hits")).unwrap_or_default();
        let mut hits = BTreeMap::new();
        for point in text.lines() {
            *hits.entry(point.to_owned()).or_default() += 1;
        }
        hits
    }

    /// The same since the last crash.
    pub(crate) fn hits_since_crash(&self) -> BTreeMap<String, usize> {
        let mut hits = self.hits();
        for (point, count) in &self.hits_before {
            hits.entry(point.clone()).and_modify(|hits| *hits -= count);
        }
        hits.retain(|_, count| *count > 0);
        hits
    }

    /// The log of the program, for the report of a failure.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Keeps the program running.
    fn mind(&mut self) {
        if let Some(node) = &mut self.node {
            let Some(status) = node.try_wait().unwrap() else { return };
            assert!(self.has_aborted(status), "it ended by itself: {status}\n{}", self.said());
        }
        let mut command = match self.program {
            Program::Relais => self.site.command(&["run", "--log", "json"]),
            Program::Service(test) => self.service(test),
        };
        self.lives += 1;
        command.envs(self.variables()).stdin(Stdio::null()).stdout(Stdio::null());
        self.node = Some(command.stderr(File::create(self.log()).unwrap()).spawn().unwrap());
    }

    fn service(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env("FAIL_POINTS_STORE", self.base.url());
        command.current_dir(self.site.path(""));
        command
    }

    /// Returns true if a process ended at its point; the next process has none.
    fn has_aborted(&mut self, status: ExitStatus) -> bool {
        if status.signal() != Some(SIGABRT) {
            return false;
        }
        let fault = self.faults.pop_front();
        let fault = fault.unwrap_or_else(|| panic!("it aborts without a fault\n{}", self.said()));
        self.crashes += 1;
        self.hits_before = self.hits();
        // Before that there are no tables.
        if !fault.point.starts_with("migrate.") {
            self.base.execute(TIME_PASSES);
        }
        true
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let list = self.site.path("hits").to_str().unwrap().to_owned();
        let mut variables = vec![("RELAIS_FAIL_POINTS_HIT", list)];
        variables.extend(self.bug.map(|bug| ("RELAIS_PLANTED_BUG", bug.to_owned())));
        if let Some(Fault { point, nth }) = self.faults.front() {
            // A process counts its own hits only.
            let before = self.hits_since_crash().get(point).copied().unwrap_or(0);
            let left = nth.checked_sub(before).expect("it would have aborted");
            variables.push(("RELAIS_FAIL_POINT", format!("{point}:{left}")));
        }
        variables
    }

    fn log(&self) -> std::path::PathBuf {
        self.site.path(&format!("{}.log", self.lives))
    }

    /// Returns the address of the source; `None` while the program is starting.
    fn address(&self) -> Option<SocketAddr> {
        address_in(&self.log())
    }
}

impl Drop for CrashHarness {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            // It may have ended; nothing is left behind.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn address_in(log: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(log).ok()?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut addresses = lines.filter_map(|line| {
        let said = line["message"].as_str()?.split_once("POST http://")?.1.to_owned();
        said.split('/').next()?.parse().ok()
    });
    addresses.next()
}

/// The status of the answer; an error if the program dies meanwhile.
fn try_post(address: SocketAddr, headers: &[(&str, &str)], body: &[u8]) -> io::Result<u16> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!(
        "POST /hook HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
