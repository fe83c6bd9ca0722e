//! A PostgreSQL of our own: found or installed, started on a free loopback port, stopped with its
//! [`Scratch`] directory.
//!
//! Invariant: no server of the machine is used, changed or left running. Durability is on, because
//! that is what relais promises on.

mod install;

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    command, ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

pub(crate) use install::install_if_missing;

pub(crate) const NAME: &str = "PostgreSQL";
/// The variable with the URL of the server, for the tests.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_POSTGRES";

/// The variable that names the program with which tests restart the server.
pub(crate) const RESTART_VARIABLE: &str = "RELAIS_TEST_POSTGRES_RESTART";

const RESTART: &str = include_str!("../postgres/restart");
/// QUIT is PostgreSQL's immediate shutdown.
const STOP: Stop = Stop { pid_file: "data/postmaster.pid", signal: "QUIT" };
/// Longest start, in seconds.
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

pub(crate) fn start() -> Result<ServerOutcome> {
    let Some(programs) = newest_programs() else {
        return Ok(ServerOutcome::Missing { name: NAME, why: install::HINT.to_owned() });
    };
    let scratch = Scratch::of_server(STOP)?;
    let account = Account::for_server(scratch.path())?;
    programs.create_cluster(&scratch.path().join("data"), account)?;
    let port = ports::first_that_works(|port| programs.start(scratch.path(), account, port))
        .context("PostgreSQL does not start")?;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let restart = programs.restart(scratch.path(), account)?.display().to_string();
    let variables = vec![(ADDRESS_VARIABLE, url), (RESTART_VARIABLE, restart)];
    Ok(ServerOutcome::Running(PrivateServer {
        name: NAME,
        version: programs.version,
        port,
        variables,
        scratch,
    }))
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

    /// Starts it and waits until connections are answered.
    fn start(&self, scratch: &Path, account: Option<Account>, port: u16) -> Result<()> {
        let log = scratch.join("log");
        let mut start = self.command("pg_ctl", account);
        start.arg("start").arg("--pgdata").arg(scratch.join("data")).arg("--log").arg(&log);
        start.args(["--wait", "--timeout", START_SECONDS_MAX, "--options"]);
        start.arg(format!("-p {port}"));
        command::output(&mut start)
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())
            .map(drop)
    }
}

impl Programs {
    /// Writes the script that restarts the server, and what it needs.
    fn restart(&self, scratch: &Path, account: Option<Account>) -> Result<PathBuf> {
        symlink(&self.folder, scratch.join("programs"))?;
        if let Some(Account { user, group }) = account {
            fs::write(scratch.join("account"), format!("{user}\n{group}\n"))?;
        }
        let script = scratch.join("restart");
        fs::write(&script, RESTART).context("cannot write the server's script")?;
        Ok(script)
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

/// Returns folders in which PostgreSQL's programs may be: from `pg_config`, the usual ones, the search path.
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
    fn the_server_is_restarted_by_its_script_unless_its_directory_is_about_to_go() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path();
        let control = "#!/bin/sh\necho \"$@\" >>\"$(dirname \"$0\")/called\"\n";
        // Written by another process: see `kafka::broker`.
        let mut write = Command::new("sh");
        write.current_dir(path).args([
            "-c",
            "printf '%s' \"$1\" >pg_ctl && chmod +x pg_ctl",
            "write",
        ]);
        command::output(write.arg(control)).unwrap();
        let programs = Programs { folder: path.to_path_buf(), version: "15.1".to_owned() };
        let script = programs.restart(path, None).unwrap();
        command::output(Command::new("sh").arg(&script)).unwrap();
        let called = fs::read_to_string(path.join("called")).unwrap();
        assert!(called.starts_with("restart --mode immediate"), "{called}");
        fs::write(path.join("closing"), "").unwrap();
        command::output(Command::new("sh").arg(&script)).unwrap_err();
        assert_eq!(fs::read_to_string(path.join("called")).unwrap(), called);
    }

    #[test]
    fn the_servers_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/:/bin/sh\npostgres2:x:9:9::/:\npostgres:x:101:104::/:\n";
        assert_eq!(Account::in_list(users, "postgres"), Some(Account { user: 101, group: 104 }));
        assert_eq!(Account::in_list(users, "nobody"), None);
    }
}
