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

#[test]
fn the_log_has_deliveries_at_debug_dead_letters_as_warnings_and_each_cleanup_with_its_counts() {
    let target = Target::start();
    let log = "[log]\nformat = \"json\"\nlevel = \"debug\"\n";
    let site = Site::with(&format!("{log}{HOOK}{ROUTE}{}", to_http("shop", &target)));
    let base = Base::Sqlite(site.path("relais.db"));
    let running = site.run_args(&["run"], &[], "\"message\":\"running\"");
    order(&running, "m-1", &[]);
    until(|| base.outbox("DISPATCHED") == 1);
    target.answers(400);
    order(&running, "m-2", &[]);
    until(|| base.outbox("FAILED") == 1);
    let said = running.stop();
    let lines: Vec<Value> = said.err.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let find = |start: &str| {
        let is_it = |line: &&Value| line["message"].as_str().unwrap_or_default().starts_with(start);
        lines.iter().find(is_it).unwrap_or_else(|| panic!("no `{start}` in {}", said.err))
    };
    assert_eq!(find("delivered")["level"], "DEBUG");
    let dead = find("dead letter: ");
    assert_eq!((&dead["level"], &dead["attempts"]), (&"WARN".into(), &1.into()), "{dead}");
    assert!(dead["message_id"].is_string() && dead["code"] == "HTTP_400", "{dead}");

    base.execute(
        "UPDATE relais_outbox SET dispatched_at = '2020-01-01T00:00:00.000Z' WHERE status = 'DISPATCHED'",
    );
    let mut running = site.run_args(&["run"], &[], "\"message\":\"running\"");
    let words = "removed rows past their retention";
    if !running.lines.iter().any(|line| line.contains(words)) {
        running.wait_for(words);
    }
    let line = running.lines.iter().find(|line| line.contains(words)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let counts = (&line["level"], &line["outbox"], &line["inbox"]);
    assert_eq!(counts, (&"INFO".into(), &1.into(), &0.into()), "{line}");
    assert_eq!((base.outbox("DISPATCHED"), base.outbox("FAILED")), (0, 1));
    running.stop();
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

#[test]
fn the_metrics_page_shows_depth_age_failures_and_error_codes_with_their_numbers() {
    let target = Target::start();
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let waiting = format!(
        "[[route]]\non = \"Waits\"\ndestination = \"closed\"\n\
         [[destination]]\nname = \"closed\"\nkind = \"http\"\nallow_private = true\nurl = \"http://{nowhere}/\"\n"
    );
    let settings = format!("{ADMIN}{HOOK}{ROUTE}{}{waiting}", to_http("shop", &target));
    let site = Site::with(&settings);
    let running = site.run();
    let admin = running.logged("admin http://");
    order(&running, "m-1", &[]);
    target.next();
    target.answers(400);
    order(&running, "m-2", &[]);
    let send = |id: &str, body: &str| {
        let headers = [("message-id", id)];
        assert_eq!(post(running.address("hook"), "/hook", &headers, body).0, 202);
    };
    for n in 3..=5 {
        send(&format!("m-{n}"), &format!(r#"{{"type": "Waits", "id": "c-{n}"}}"#));
    }
    send("m-6", "{oops");
    let lines = [
        "relais_inbox_rows{status=\"PROCESSED\"} 5\n",
        "relais_inbox_rows{status=\"SERDE_ERROR\"} 1\n",
        "relais_serde_errors_total{source=\"hook\"} 1\n",
        "relais_outbox_rows{status=\"DISPATCHED\"} 1\n",
        "relais_outbox_rows{status=\"FAILED\"} 1\n",
        "relais_outbox_pending{destination=\"closed\"} 3\n",
        "relais_delivered_total{destination=\"shop\",result=\"dispatched\"} 1\n",
        "relais_delivered_total{destination=\"shop\",result=\"failed\"} 1\n",
        "relais_problems_total{destination=\"shop\",code=\"HTTP_400\"} 1\n",
        "relais_dead_letters_open 1\n",
    ];
    let mut page = String::new();
    let missing = |page: &str| lines.into_iter().find(|line| !page.contains(line));
    let started = std::time::Instant::now();
    while started.elapsed().as_secs() < 30 {
        page = get(admin, "/metrics").1;
        if missing(&page).is_none() {
            break;
        }
    }
    assert_eq!(missing(&page), None, "{page}");
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<f64>().unwrap_or_else(|_| panic!("no {name} in {page}"))
    };
    assert!(value("relais_inbox_oldest_seconds ") >= 0.0);
    assert!(value("relais_outbox_oldest_seconds{destination=\"closed\"}") >= 0.0);
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
