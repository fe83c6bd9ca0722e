//! A PostgreSQL of our own: found or installed, started on a free loopback port, stopped with its
//! [`Scratch`] directory.
//!
//! Invariant: no server of the machine is used, changed or left running. Durability is on, because
//! that is what relais promises on.

mod install;

use std::{
    fs,
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

use crate::{command, scratch::Scratch};

/// The variable that tells the tests where the server is.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_POSTGRES";

/// Ports to look at: below the range from which systems give ports to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many ports are tried before giving up; another program may be faster.
const STARTS_MAX: usize = 5;
/// How long a start may take, in seconds.
const START_SECONDS_MAX: &str = "60";

/// Durable, loopback only, no socket file; room for tests that run side by side.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
fsync = on
synchronous_commit = on
full_page_writes = on
";

/// A running private server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) port: u16,
    scratch: Scratch,
}

impl Server {
    /// Starts one, installing PostgreSQL first where that is possible. `None`: there is none here.
    pub(crate) fn start() -> Result<Option<Self>> {
        let programs = match newest_programs() {
            Some(programs) => programs,
            None if install::possible() => {
                install::install()?;
                newest_programs().context("the installed PostgreSQL was not found")?
            }
            None => return Ok(None),
        };
        let scratch = Scratch::new()?;
        let account = Account::for_server(scratch.path())?;
        let data = scratch.path().join("data");
        programs.create_cluster(&data, account)?;
        let port = programs.start(scratch.path(), account)?;
        Ok(Some(Self { version: programs.version, port, scratch }))
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Leaves it running and says how to get rid of it.
    pub(crate) fn keep(self) {
        let path = self.scratch.path().display().to_string();
        println!("kept: {ADDRESS_VARIABLE}={}", self.url());
        println!("to remove it: kill $(head -n 1 {path}/data/postmaster.pid); rm -r {path}");
        self.scratch.keep();
    }
}

/// `cargo xtask server`: until Ctrl-C, which ends us; the keeper then stops the server.
pub(crate) fn serve() -> Result<ExitCode> {
    let Some(server) = Server::start()? else { bail!(install::HINT) };
    println!("PostgreSQL {} is ready; Ctrl-C stops and removes it", server.version);
    println!("export {ADDRESS_VARIABLE}={}", server.url());
    loop {
        std::thread::park();
    }
}

/// The folder of one installation's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    fn at(folder: &Path) -> Option<Self> {
        let complete = ["initdb", "pg_ctl"].iter().all(|name| folder.join(name).is_file());
        let answer =
            command::output(Command::new(folder.join("postgres")).arg("--version")).ok()?;
        let version = version_in(&answer)?;
        complete.then(|| Self { folder: folder.to_path_buf(), version })
    }

    fn command(&self, name: &str, account: Option<Account>) -> Command {
        let mut command = Command::new(self.folder.join(name));
        // Any directory the server's user may enter; ours may be closed to it.
        command.current_dir("/").env("LC_ALL", "C");
        if let Some(account) = account {
            command.uid(account.user).gid(account.group);
        }
        command
    }

    fn create_cluster(&self, data: &Path, account: Option<Account>) -> Result<()> {
        let mut initdb = self.command("initdb", account);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        command::output(initdb.arg("--no-sync").arg("--pgdata").arg(data))?;
        let settings = data.join("postgresql.conf");
        let text = fs::read_to_string(&settings)? + SETTINGS;
        fs::write(&settings, text).context("cannot write the server's settings")
    }

    /// Starts on the first port that works and waits until connections are answered.
    fn start(&self, scratch: &Path, account: Option<Account>) -> Result<u16> {
        let log = scratch.join("log");
        let mut problem = String::new();
        let mut first = PORTS.start + (std::process::id() % 10_000) as u16;
        for _ in 0..STARTS_MAX {
            let port = free_port(first).context("no free port for PostgreSQL")?;
            let mut start = self.command("pg_ctl", account);
            start.arg("start").arg("--pgdata").arg(scratch.join("data")).arg("--log").arg(&log);
            start.args(["--wait", "--timeout", START_SECONDS_MAX, "--options"]);
            start.arg(format!("-p {port}"));
            match command::output(&mut start) {
                Ok(_) => return Ok(port),
                Err(error) => problem = format!("{error:#}"),
            }
            first = port + 1;
        }
        let log = fs::read_to_string(&log).unwrap_or_default();
        bail!("PostgreSQL does not start: {problem}\n{log}")
    }
}

/// The user the server runs as; PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// `None`: we are not root, the server may run as we do. Otherwise the directory becomes theirs.
    fn for_server(scratch: &Path) -> Result<Option<Self>> {
        if fs::metadata(scratch)?.uid() != 0 {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read the list of users")?;
        let account = ["postgres", "nobody"]
            .iter()
            .find_map(|name| Self::in_list(&users, name))
            .context("running as root, and there is no user `postgres` or `nobody` to start PostgreSQL as")?;
        chown(scratch, Some(account.user), Some(account.group))?;
        Ok(Some(account))
    }

    fn in_list(users: &str, name: &str) -> Option<Self> {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(str::parse);
        let (user, group) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(Self { user, group })
    }
}

/// The newest complete installation.
fn newest_programs() -> Option<Programs> {
    let found = folders().into_iter().filter_map(|folder| Programs::at(&folder));
    found.max_by_key(|programs| number(&programs.version))
}

/// Where PostgreSQL's programs may be: what `pg_config` says, the usual places, the search path.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(answer) = command::output(Command::new("pg_config").arg("--bindir")) {
        folders.push(PathBuf::from(answer.trim()));
    }
    for parent in ["/usr/lib/postgresql", "/usr/local/opt", "/opt/homebrew/opt", "/usr"] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let versions = entries.filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            parent.ends_with("/postgresql")
                || name.starts_with("postgresql")
                || name.starts_with("pgsql-")
        });
        folders.extend(versions.map(|entry| entry.path().join("bin")));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders
}

/// The version in an answer such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version_in(answer: &str) -> Option<String> {
    let version = answer.split("(PostgreSQL) ").nth(1)?.split_whitespace().next()?;
    Some(version.to_owned())
}

/// A version as numbers, to compare by.
fn number(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn free_port(first: u16) -> Option<u16> {
    (first..PORTS.end).chain(PORTS).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_and_compared_by_number() {
        let answer = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version_in(answer).as_deref(), Some("15.18"));
        assert_eq!(version_in("postgres (PostgreSQL) 18beta1").as_deref(), Some("18beta1"));
        assert_eq!(version_in("no such program"), None);
        assert!(number("15.18") > number("15.9"));
        assert!(number("9.6") < number("15.1"));
    }

    #[test]
    fn the_servers_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/:/bin/sh\npostgres2:x:9:9::/:\npostgres:x:101:104::/:\n";
        assert_eq!(Account::in_list(users, "postgres"), Some(Account { user: 101, group: 104 }));
        assert_eq!(Account::in_list(users, "nobody"), None);
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let first = free_port(PORTS.start).unwrap();
        let _taken = TcpListener::bind(("127.0.0.1", first)).unwrap();
        let next = free_port(first).unwrap();
        assert_ne!(next, first);
        assert!(PORTS.contains(&next));
    }
}
