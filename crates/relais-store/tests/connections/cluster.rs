//! Private servers: PostgreSQL and PgBouncer, stopped and removed with their value.

use std::{
    env, fs,
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// The longest wait for the answer of a server.
const START_MAX: Duration = Duration::from_secs(60);

/// The folder of PostgreSQL's programs, and the account that runs them where we are root. In CI they
/// must be there.
pub(crate) struct Programs {
    folder: PathBuf,
    account: Option<(u32, u32)>,
}

impl Programs {
    pub(crate) fn find() -> Option<Self> {
        let Some(script) = env::var_os("RELAIS_TEST_POSTGRES_RESTART") else {
            assert!(env::var_os("CI").is_none(), "in CI the PostgreSQL tests must run");
            eprintln!("NOT TESTED: connections to PostgreSQL; run `cargo xtask server` beside it");
            return None;
        };
        let scratch = PathBuf::from(script).parent().unwrap().to_owned();
        let account = fs::read_to_string(scratch.join("account")).ok().map(|text| {
            let mut numbers = text.lines().map(|line| line.parse().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap())
        });
        Some(Self { folder: scratch.join("programs"), account })
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir("/").env("LC_ALL", "C");
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn own(&self, path: &Path) {
        if let Some((user, group)) = self.account {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }

    fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.own(folder.path());
        folder
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    output
}

/// A port that is free now, and given once. Not one of those that the system gives to outgoing
/// connections.
fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 997).unwrap() * 8;
    let mut ports =
        std::iter::repeat_with(|| 21_000 + (start + GIVEN.fetch_add(1, Ordering::Relaxed)) % 8_000);
    ports
        .by_ref()
        .take(8_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// A running PostgreSQL.
pub(crate) struct Cluster {
    pub(crate) programs: Programs,
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
}

impl Cluster {
    /// Every account of this machine may do everything.
    pub(crate) fn start(programs: Programs) -> Self {
        Self::start_with(programs, "", "host all all 127.0.0.1/32 trust\n", &[])
    }

    /// With more settings, rules for who may connect, and files beside the data.
    pub(crate) fn start_with(
        programs: Programs,
        settings: &str,
        rules: &str,
        files: &[(&str, &str)],
    ) -> Self {
        let folder = Self::prepare(&programs, settings, rules, files);
        Self::serve(programs, folder)
    }

    fn prepare(
        programs: &Programs,
        settings: &str,
        rules: &str,
        files: &[(&str, &str)],
    ) -> TempDir {
        let folder = programs.folder();
        let data = folder.path().join("data");
        let mut initdb = programs.command(programs.folder.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        run(initdb.arg("--no-sync").arg("--pgdata").arg(&data));
        for (name, text) in files {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            programs.own(&path);
        }
        let rules = format!("host replication all 127.0.0.1/32 trust\n{rules}");
        fs::write(data.join("pg_hba.conf"), rules).unwrap();
        let common = "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n";
        let file = data.join("postgresql.conf");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}\n{common}{settings}")).unwrap();
        folder
    }

    /// A primary and its standby. Both begin with the same files, made before either ran.
    pub(crate) fn start_pair(programs: Programs) -> (Self, Self) {
        let rules = "host all all 127.0.0.1/32 trust\n";
        let first = Self::prepare(&programs, "", rules, &[]);
        let others = Programs::find().unwrap();
        let second = others.folder();
        let data = second.path().join("data");
        run(others.command("cp").arg("-a").arg(first.path().join("data")).arg(&data));
        let primary = Self::serve(programs, first);
        let source = format!("host=127.0.0.1 port={} user=postgres", primary.port);
        let file = data.join("postgresql.conf");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}primary_conninfo = '{source}'\n")).unwrap();
        fs::write(data.join("standby.signal"), "").unwrap();
        others.own(&data.join("standby.signal"));
        (primary, Self::serve(others, second))
    }

    fn serve(programs: Programs, folder: TempDir) -> Self {
        let port = free_port();
        let mut start = programs.command(programs.folder.join("pg_ctl"));
        start.args(["start", "--wait", "--timeout=60"]).arg("--pgdata");
        start.arg(folder.path().join("data")).arg("--log").arg(folder.path().join("log"));
        // Its output would keep ours open.
        start.arg(format!("--options=-p {port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let started = start.status().unwrap().success();
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(started, "{log}");
        Self { programs, folder, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.url()).await.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = self.programs.command(self.programs.folder.join("pg_ctl"));
        stop.args(["stop", "--mode=immediate"])
            .arg("--pgdata")
            .arg(self.folder.path().join("data"));
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A running PgBouncer in front of a server.
pub(crate) struct Bouncer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Bouncer {
    /// In front of a cluster: see [`Self::start_at`].
    pub(crate) async fn start(cluster: &Cluster, settings: &str) -> Option<Self> {
        let to = format!("host=127.0.0.1 port={} dbname=postgres user=postgres", cluster.port);
        Self::start_at(&to, settings).await
    }

    /// Three sessions of the server for each database: fewer than a store's connections. `None` without
    /// the program; in CI it must be there.
    pub(crate) async fn start_at(to: &str, settings: &str) -> Option<Self> {
        let found = env::var_os("RELAIS_TEST_PGBOUNCER");
        let Some(program) = found else {
            assert!(env::var_os("CI").is_none(), "in CI the tests with PgBouncer must run");
            eprintln!("NOT TESTED: PgBouncer; set RELAIS_TEST_PGBOUNCER to the program");
            return None;
        };
        let programs = Programs::find()?;
        let (folder, port) = (programs.folder(), free_port());
        let text = format!(
            "[databases]\ntx = {to} pool_mode=transaction pool_size=3\n\
             sess = {to} pool_mode=session pool_size=60\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\nmax_client_conn = 200\n{settings}\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, text).unwrap();
        let mut command = programs.command(program);
        let child = command.arg("-q").arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let bouncer = Self { child: child.unwrap(), port, _folder: folder };
        let answers = async {
            while connect(&bouncer.url("sess")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(START_MAX, answers).await.expect("PgBouncer answers");
        Some(bouncer)
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
