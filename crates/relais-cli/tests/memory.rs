//! The memory of the real program is bounded by bytes, not by rows.
#![cfg(target_os = "linux")]
// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Shared with tests that use more of it.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use org::{Base, Org, until};
use salesforce_sim::Faults;
use support::{Running, Site, Target, postgres::PostgresSchema};
use yaml_rust2::YamlLoader;

const MIB: usize = 1024 * 1024;

/// Rows of a destination, all with a payload of the same size.
struct Backlog {
    rows: usize,
    bytes: usize,
}

/// Reading all rows at once takes 2.5 times their bytes: 900 MiB.
const MANY: Backlog = Backlog { rows: 120, bytes: 3 * MIB };
const MANY_RESIDENT_MAX_KIB: u64 = 200_000_000 / 1024;

/// Reading all rows at once takes more than the limit of the Kubernetes manifest.
const LARGE: Backlog = Backlog { rows: 100, bytes: 7 * MIB };
const LARGE_LIMIT_BYTES: usize = 512 * MIB;

/// Collecting these rows takes 160 MB, without the program itself.
const BULK: Backlog = Backlog { rows: 2_500, bytes: 64_000 };
const BULK_RESIDENT_MAX_KIB: u64 = 150_000_000 / 1024;

const POSTS: usize = 20;
const POST_BYTES: usize = 8_000_000;
/// Without the limits on bytes it was 435 MB.
const POSTS_RESIDENT_MAX_KIB: u64 = 250_000_000 / 1024;
/// Pages of the program file in a release build, about 20 MB. A debug build has 50 MB of them.
const PROGRAM_KIB: u64 = 20_000_000 / 1024;
/// The bodies alone have 160 MB.
const IDLE_RESIDENT_MAX_KIB: u64 = 100 * 1024;

/// Returns a figure of the process: `VmHWM` is the most memory it ever had, `VmRSS` what it has now.
fn resident_kib(pid: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn assert_resident_at_most(max_kib: u64, running: &Running) {
    let resident = resident_kib(running.pid(), "VmHWM");
    println!("{resident} KiB were resident");
    assert!(resident <= max_kib, "{resident} KiB were resident");
}

#[test]
fn a_backlog_of_large_rows_is_delivered_in_little_memory_on_sqlite() {
    let (target, site) = (Target::start(), Site::new());
    let base = Base::Sqlite(site.path("relais.db"));
    delivers_in_little_memory(&site, &base, &target);
}

#[test]
fn a_backlog_of_large_rows_is_delivered_in_little_memory_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    delivers_in_little_memory(&Site::new(), &Base::Postgres(schema), &Target::start());
}

fn delivers_in_little_memory(site: &Site, base: &Base, target: &Target) {
    fill(site, base, &settings(base, target), &MANY);
    let running = site.run();
    for _ in 0..MANY.rows {
        target.next();
    }
    assert_resident_at_most(MANY_RESIDENT_MAX_KIB, &running);
}

#[test]
fn a_hundred_rows_of_7_mib_are_delivered_under_a_limit_of_512_mib_on_sqlite() {
    let (target, site) = (Target::start(), Site::new());
    let base = Base::Sqlite(site.path("relais.db"));
    delivers_under_a_limit(&site, &base, &target);
}

#[test]
fn a_hundred_rows_of_7_mib_are_delivered_under_a_limit_of_512_mib_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    delivers_under_a_limit(&Site::new(), &Base::Postgres(schema), &Target::start());
}

#[test]
fn the_kubernetes_manifest_has_the_limit_that_is_tested() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops/kubernetes/relais.yaml");
    let manifests = YamlLoader::load_from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let deployment = manifests.iter().find(|one| one["kind"].as_str() == Some("Deployment"));
    let container = &deployment.unwrap()["spec"]["template"]["spec"]["containers"][0];
    let limit = container["resources"]["limits"]["memory"].as_str().unwrap();
    assert_eq!(limit, format!("{}Mi", LARGE_LIMIT_BYTES / MIB));
}

/// An allocation beyond the limit ends the program.
fn delivers_under_a_limit(site: &Site, base: &Base, target: &Target) {
    fill(site, base, &settings(base, target), &LARGE);
    let run = site.command(&["run", "--log", "json"]);
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--data={LARGE_LIMIT_BYTES}")).arg(run.get_program()).args(run.get_args());
    limited.current_dir(site.path("")).env_remove("RELAIS_CONFIG").env_remove("RUST_LOG");
    let running = Running::start(limited, "\"message\":\"running\"");
    for _ in 0..LARGE.rows {
        assert_eq!(target.next().body.len(), LARGE.bytes);
    }
    assert_eq!(running.stop().code, 0);
}

#[test]
fn a_bulk_job_holds_one_page_of_its_rows_in_memory() {
    for (site, base) in Base::all(&Site::new) {
        let org = Org::with(Faults::default());
        let text = format!(
            "[store]\nurl = \"{}\"\n[[destination]]\nname = \"out\"\nkind = \"salesforce\"\n\
             api = \"bulk-v2\"\nlogin_url = \"{}\"\nclient_id = \"app\"\n\
             client_secret = \"hush-hush\"\nobject = \"Contact\"\nexternal_id = \"ExternalId__c\"\n\
             columns = {{ LastName = \"/name\" }}\n\
             [destination.bulk]\nrows = {}\nlinger = \"2s\"\npoll_first = \"20ms\"\n",
            base.url(),
            org.url(),
            BULK.rows
        );
        fill(&site, &base, &text, &BULK);
        let running = site.run();
        until(|| org.records("Contact").len() >= BULK.rows / 2);
        until(|| org.records("Contact").len() == BULK.rows);
        // Not the rows themselves: reading the status of each costs more than the job.
        let open = "SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL";
        until(|| base.texts(open).is_empty());
        assert_resident_at_most(BULK_RESIDENT_MAX_KIB, &running);
        assert_eq!(running.stop().code, 0);
        org.assert_once("Contact", BULK.rows);
    }
}

#[test]
fn many_large_posts_at_once_need_little_memory_and_give_it_back() {
    for (site, base) in Base::all(&Site::new) {
        let target = Target::start();
        let text = format!(
            "{}[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
             source_system = \"crm\"\nevent_type = \"payload:/type\"\n\
             [[route]]\non = \"E\"\ndestination = \"out\"\n",
            settings(&base, &target)
        );
        site.write("relais.toml", &text);
        assert_eq!(site.relais(&["migrate"]).code, 0);
        let running = site.run();
        let address = running.address("hook");
        let body = format!("{{\"type\":\"E\",\"name\":\"{}\"}}", "x".repeat(POST_BYTES));
        std::thread::scope(|scope| {
            for number in 0..POSTS {
                let body = &body;
                scope.spawn(move || until(|| post(address, number, body) == Some(202)));
            }
            for _ in 0..POSTS {
                target.next();
            }
        });
        // As much as a release build would have.
        let pages = resident_kib(running.pid(), "RssFile");
        let most = POSTS_RESIDENT_MAX_KIB - PROGRAM_KIB + pages.max(PROGRAM_KIB);
        assert_resident_at_most(most, &running);
        until(|| resident_kib(running.pid(), "VmRSS") <= IDLE_RESIDENT_MAX_KIB);
        assert_eq!(running.stop().code, 0);
    }
}

/// Posts a body and returns the status, if an answer came. A source that is busy answers before it has read the
/// whole body.
fn post(address: SocketAddr, number: usize, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let length = body.len();
    let head = format!(
        "POST /hook HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         message-id: m-{number}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// A store and an HTTP destination.
fn settings(base: &Base, target: &Target) -> String {
    format!(
        "[store]\nurl = \"{}\"\n[[destination]]\nname = \"out\"\nkind = \"http\"\n\
         allow_private = true\nurl = \"http://{}/in\"\n",
        base.url(),
        target.address
    )
}

/// Writes the configuration, migrates, and sends the rows: JSON objects with the field `name` last.
fn fill(site: &Site, base: &Base, settings: &str, backlog: &Backlog) {
    site.write("relais.toml", settings);
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let Backlog { rows, bytes } = backlog;
    let (start, end) = ("{\"fill\":\"", "\",\"name\":\"Doe\"}");
    let fill = bytes - start.len() - end.len();
    let fill = match base {
        Base::Sqlite(_) => format!("printf('%.{fill}c', 'x')"),
        Base::Postgres(_) => format!("repeat('x', {fill})"),
    };
    base.execute(&format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         SELECT 'a', 'k' || i, 'E', 'out', '{start}' || {fill} || '{end}' FROM n"
    ));
}
