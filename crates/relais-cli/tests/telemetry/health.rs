//! Log, metrics and readiness of the running program.

use std::process::Command;

use serde_json::Value;

use crate::{
    ADMIN, HOOK,
    node::Node,
    order,
    org::{Base, Org, until},
    support::{Running, Site, Target, get, post},
    to_http,
};
use salesforce_sim::SimulatorConfig;

const ROUTE: &str =
    "[[route]]\non = \"Ordered\"\naggregate_type = \"Order\"\ndestination = \"shop\"\n";

#[test]
fn the_command_line_overrides_the_configured_log_format() {
    let target = Target::start();
    let log = "[log]\nformat = \"json\"\nlevel = \"debug\"\n";
    let site = Site::with(&format!("{log}{HOOK}{ROUTE}{}", to_http("shop", &target)));
    let running = site.run_args(&["run"], &[], "\"message\":\"running\"");
    order(&running, "m-1", &[]);
    target.next();
    let said = running.stop();
    let lines: Vec<Value> = said.err.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let find = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("no `{message}` in {}", said.err)).clone()
    };
    let handled = find("handled");
    assert_eq!((&handled["message_id"], &handled["key"]), (&"m-1".into(), &"customer-4711".into()));
    let delivered = find("delivered");
    assert_eq!(delivered["destination"], "shop");
    assert!(delivered["message_id"].is_string() && delivered["level"] == "DEBUG");

    let running = site.run_args(&["run", "--log", "text"], &[("RUST_LOG", "info")], "running");
    let said = running.stop();
    assert!(!said.err.contains("{\""), "{}", said.err);
    assert!(!said.err.contains("DEBUG"), "{}", said.err);
}

/// Every secret a settings file can hold, in a program that logs everything and meets trouble.
#[test]
fn no_secret_of_the_settings_is_in_the_log_even_at_trace() {
    let (target, org) = (Target::start(), Org::start(SimulatorConfig::default()));
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    base.members(1);
    let contacts = crate::org::contacts(&org, "collections", "");
    let shop = format!(
        "[[destination]]\nname = \"shop\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/canary-path?key=canary-query\"\nsecret = \"whsec_Y2FuYXJ5LXNpZ25pbmcta2V5LTEyMzQ=\"\n\
         headers = {{ authorization = \"Bearer canary-bearer\" }}\n\
         [destination.retry]\nfirst = \"10ms\"\nmax = \"10ms\"\n",
        target.address
    );
    let source = HOOK.replace("source_system", "token = \"canary-source-token\"\nsource_system");
    site.write(
        "relais.toml",
        &format!(
            "[telemetry]\notlp = \"http://127.0.0.1:1/canary-otlp-path\"\n\
             headers = {{ x-key = \"canary-otlp\" }}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"canary-admin-token-canary-admin-token\"\n\
             {source}{ROUTE}{shop}{contacts}"
        ),
    );
    let node = Node::start_with(&site, "node", &[("RUST_LOG", "trace")]);
    until(|| node.admin().is_some());
    let (hook, admin) = (node.address("hook").unwrap(), node.admin().unwrap());
    target.answers(400);
    let send = |id: &str, token: &str, body: &str| {
        let token = format!("Bearer {token}");
        post(hook, "/hook", &[("authorization", token.as_str()), ("message-id", id)], body).0
    };
    let body = r#"{"type": "Ordered", "id": "1"}"#;
    assert_eq!(send("m-1", "canary-source-token", body), 202);
    let event = crate::org::members_created(1..=1, 1);
    assert_eq!(send("m-2", "canary-source-token", &event), 202);
    assert_eq!(send("m-3", "canary-wrong-token", body), 401);
    assert_eq!(get(admin, "/metrics").0, 401);
    until(|| !org.records("Contact").is_empty());
    until(|| base.outbox("FAILED") == 1);
    let log = site.path("node.log");
    node.stop();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("TRACE"), "it logs everything");
    for secret in ["canary", "hush-hush", "Y2FuYXJ5"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "`{secret}` in the log");
    }
}

#[test]
fn the_metrics_page_has_latencies_and_facts() {
    let target = Target::start();
    let site = Site::with(&format!("{ADMIN}{HOOK}{ROUTE}{}", to_http("shop", &target)));
    let running = site.run();
    let admin = running.logged("admin http://");
    order(&running, "m-1", &[]);
    target.next();
    let end_to_end = "relais_end_to_end_seconds_count{destination=\"shop\"} 1\n";
    until(|| get(admin, "/metrics").1.contains(end_to_end));
    let (_, page) = get(admin, "/metrics");
    for line in [
        "relais_build_info{version=\"0.1.0\",store=\"sqlite ",
        "relais_destination_info{destination=\"shop\",kind=\"http\",object=\"\"} 1\n",
        "relais_received_total{source=\"hook\",result=\"stored\"} 1\n",
        "relais_handling_seconds_count 1\n",
        "relais_dispatch_seconds_bucket{destination=\"shop\",le=\"+Inf\"} 1\n",
        "relais_publish_seconds_count{destination=\"shop\"} 1\n",
        "relais_lanes_owned{scope=\"inbox\"} 64\n",
        "relais_lanes_lost_total{scope=\"outbox:shop\"} 0\n",
        "relais_source_up{source=\"hook\"} 1\n",
        "process_cpu_seconds_total ",
    ] {
        assert!(page.contains(line), "no {line} in {page}");
    }
    let (status, ready) = get(admin, "/readyz");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["ready"]), (200, &true.into()), "{ready}");
    assert_eq!(ready["checks"]["writes"], "ok");
    running.stop();
}

/// A limit on the size of files is a disk that is full, and can be lifted.
#[test]
fn a_disk_that_is_full_makes_it_unready_with_the_reason_until_there_is_room() {
    let prlimit = |pid: u32, size: &str| {
        let size = format!("--fsize={size}:unlimited");
        let pid = pid.to_string();
        Command::new("prlimit").args([&size, "--pid", &pid]).status().is_ok_and(|s| s.success())
    };
    if !prlimit(std::process::id(), "unlimited") {
        eprintln!("NOT TESTED: a full disk; there is no prlimit");
        return;
    }
    let target = Target::start();
    let site = Site::with(&format!(
        "[lanes]\nlease = \"2s\"\n{ADMIN}{HOOK}{ROUTE}{}",
        to_http("shop", &target)
    ));
    // A program beyond this limit is killed, unless it ignores the signal; a full disk kills no program.
    let mut patient = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_relais");
    patient.args(["-c", "trap '' XFSZ; exec \"$0\" run --log json", program]);
    patient.current_dir(site.path(""));
    let running = Running::start(patient, "\"message\":\"running\"");
    let admin = running.logged("admin http://");
    assert_eq!(get(admin, "/readyz").0, 200);
    assert!(prlimit(running.pid(), "1024"));
    let mut said = (0, Value::Null);
    until(|| {
        let (status, body) = get(admin, "/readyz");
        said = (status, serde_json::from_str(&body).unwrap());
        said.1["checks"]["writes"].as_str().is_some_and(|text| text.contains("no heartbeat"))
    });
    let (status, ready) = said;
    assert_eq!((status, &ready["ready"]), (503, &false.into()), "{ready}");
    assert!(ready["reason"].as_str().unwrap().contains("disk"), "{ready}");
    assert_eq!(get(admin, "/healthz").0, 200, "alive it is");
    assert!(prlimit(running.pid(), "unlimited"));
    until(|| get(admin, "/readyz").0 == 200);
    order(&running, "m-1", &[]);
    target.next();
    running.stop();
}

#[cfg(feature = "kafka")]
#[test]
fn a_program_whose_only_source_is_unavailable_is_not_ready_and_names_it() {
    // No server listens on port 1.
    let site = Site::with(&format!(
        "{ADMIN}[[source]]\nname = \"orders\"\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\n\
         group = \"g\"\ntopics = [\"t\"]\n{ROUTE}\
         [[destination]]\nname = \"shop\"\nkind = \"log\"\n"
    ));
    let running = site.run();
    let admin = running.logged("admin http://");
    until(|| get(admin, "/readyz").0 == 503);
    let ready: Value = serde_json::from_str(&get(admin, "/readyz").1).unwrap();
    let sources = ready["checks"]["sources"].as_str().unwrap();
    assert!(sources.starts_with("source orders: "), "{ready}");
    assert!(get(admin, "/metrics").1.contains("relais_source_up{source=\"orders\"} 0\n"));
    running.stop();
}
