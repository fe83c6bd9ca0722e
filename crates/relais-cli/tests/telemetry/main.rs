//! The telemetry of the program: traces, log, metrics, readiness.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "kafka")]
#[path = "../support/broker.rs"]
#[allow(dead_code)]
mod broker;
mod collector;
mod health;
#[path = "../support/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../support/org.rs"]
#[allow(dead_code)]
mod org;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::net::TcpListener;

use collector::{Collector, Span};
use org::{Base, Org, until};
use salesforce_sim::SimulatorConfig;
use support::{Running, Site, Target, get, post};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

const HOOK: &str = "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
    source_system = \"crm\"\nmessage_id = \"header:message-id\"\naggregate_id = \"payload:/id\"\n";
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn to_http(name: &str, target: &Target) -> String {
    format!(
        "[[destination]]\nname = \"{name}\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    )
}

fn order(running: &Running, id: &str, headers: &[(&str, &str)]) {
    let headers = [&[("message-id", id)], headers].concat();
    let body = r#"{"type": "Ordered", "id": "customer-4711"}"#;
    let (status, said) = post(running.address("hook"), "/hook", &headers, body);
    assert_eq!(status, 202, "{said}");
}

fn traceparent(head: &str) -> String {
    let head = head.to_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("traceparent:"));
    line.unwrap_or_else(|| panic!("no traceparent: {head}")).trim().to_owned()
}

fn assert_child(span: &Span, parent: &Span) {
    assert_eq!(span.trace, parent.trace, "{span:#?} {parent:#?}");
    assert_eq!(span.parent.as_deref(), Some(parent.id.as_str()), "{span:#?} {parent:#?}");
}

#[test]
fn one_trace_covers_the_way_from_a_post_over_two_processes_to_http_and_salesforce() {
    let (mut collector, target, org) =
        (Collector::start(), Target::start(), Org::start(SimulatorConfig::default()));
    let routes = "[[route]]\non = \"MembersCreated\"\naggregate_type = \"Family\"\n\
         destination = \"audit\"\n";
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    base.members(3);
    let contacts = org::contacts(&org, "bulk-v2", "");
    let (to_contacts, contacts) = contacts.split_at(contacts.find("[[destination]]").unwrap());
    let intake = collector.settings("intake");
    let hook = HOOK.replace("payload:/id", "payload:/familyId");
    let elsewhere = ["audit", "HTTP:SFDC:BulkV2:Contact"]
        .map(|name| format!("[[destination]]\nname = \"{name}\"\nexternal = true\n"))
        .concat();
    site.write("relais.toml", &format!("{intake}{hook}{routes}{to_contacts}{elsewhere}"));
    let intake = site.run();
    let headers = [("message-id", "m-1"), ("traceparent", PARENT)];
    let event = org::members_created(1..=3, 1);
    let (status, said) = post(intake.address("hook"), "/hook", &headers, &event);
    assert_eq!(status, 202, "{said}");
    until(|| base.outbox("PENDING") == 4);
    assert_eq!(intake.stop().code, 0);
    let (accept, handle) = (collector.span("accept hook"), collector.span("handle MembersCreated"));
    assert_eq!((accept.trace.as_str(), accept.parent.as_deref()), (TRACE, Some(&PARENT[36..52])));
    assert_child(&handle, &accept);

    let delivery =
        format!("{}{contacts}{}", collector.settings("delivery"), to_http("audit", &target));
    site.write("relais.toml", &delivery);
    let running = site.run();
    let publish = collector.span("publish audit");
    assert_child(&publish, &handle);
    assert_eq!(traceparent(&target.next().head), format!("00-{TRACE}-{}-01", publish.id));
    let contact = collector.span("publish HTTP:SFDC:BulkV2:Contact");
    assert_child(&contact, &handle);
    assert!(contact.attributes.contains_key("relais.bulk_job.remote_id"), "{contact:#?}");
    org.assert_once("Contact", 3);
    assert_eq!(running.stop().code, 0);

    assert_eq!((accept.service.as_str(), publish.service.as_str()), ("intake", "delivery"));
    assert_eq!((accept.kind, handle.kind, publish.kind), (5, 5, 4), "consumer and producer");
    assert_eq!(handle.attributes["messaging.message.id"], "m-1");
    assert!(!publish.failed);
    for secret in ["F-8842", "M-1", "hush-hush", "canary-otlp", "memberIds"] {
        assert!(!collector.raw.contains(secret), "{secret} in a span");
    }
}

#[cfg(feature = "kafka")]
#[test]
fn one_trace_covers_the_way_between_two_kafka_records_and_the_lag_is_reported() {
    use broker::{Broker, header};
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("in", 1), broker.topic("out", 1));
    let mut collector = Collector::start();
    let site = Site::with(&format!(
        "{telemetry}{ADMIN}[[source]]\nname = \"orders\"\nkind = \"kafka\"\n\
         brokers = \"{brokers}\"\ngroup = \"{from}\"\ntopics = [\"{from}\"]\n\
         [[route]]\non = \"Ordered\"\naggregate_type = \"Order\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         topic = \"{to}\"\n",
        telemetry = collector.settings("relais"),
        brokers = broker.address,
        from = from.name,
        to = to.name,
    ));
    from.send("o-1", &[("traceparent", PARENT)], Some(br#"{"type": "Ordered"}"#));
    let running = site.run();
    let record = to.read(1).remove(0);
    let accept = collector.span("accept orders");
    let handle = collector.span("handle Ordered");
    let publish = collector.span("publish out");
    assert_eq!((accept.trace.as_str(), accept.parent.as_deref()), (TRACE, Some(&PARENT[36..52])));
    assert_eq!(accept.attributes["messaging.kafka.offset"], "0");
    assert_child(&handle, &accept);
    assert_child(&publish, &handle);
    let sent = header(&record, "traceparent").unwrap();
    assert_eq!(sent, format!("00-{TRACE}-{}-01", publish.id));
    assert_eq!(header(&record, "relais-received-at"), None, "what is ours stays here");

    let admin = running.logged("admin http://");
    until(|| get(admin, "/metrics").1.contains("relais_source_lag{source=\"orders\"} 0\n"));
    assert!(get(admin, "/metrics").1.contains("relais_source_up{source=\"orders\"} 1\n"));
    assert_eq!(running.stop().code, 0);
}

#[test]
fn an_unavailable_collector_does_not_affect_messages() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = Target::start();
    let site = Site::with(&format!(
        "[telemetry]\notlp = \"http://{closed}\"\n{HOOK}\
         [[route]]\non = \"Ordered\"\naggregate_type = \"Order\"\ndestination = \"shop\"\n{}",
        to_http("shop", &target)
    ));
    let running = site.run();
    for n in 0..20 {
        order(&running, &format!("m-{n}"), &[]);
    }
    let first = traceparent(&target.next().head);
    assert!(first.ends_with("-01"), "a trace begins here: {first}");
    for _ in 1..20 {
        target.next();
    }
    let said = running.stop();
    assert_eq!(said.code, 0, "{}", said.err);
    let complaints = said.err.matches("the collector refused spans").count();
    assert!(complaints <= 1, "{}", said.err);
}

#[test]
fn without_a_collector_a_trace_passes_through_as_it_came() {
    let target = Target::start();
    let site = Site::with(&format!(
        "{HOOK}[[route]]\non = \"Ordered\"\naggregate_type = \"Order\"\ndestination = \"shop\"\n{}",
        to_http("shop", &target)
    ));
    let running = site.run();
    order(&running, "m-1", &[("traceparent", PARENT)]);
    let seen = target.next();
    assert_eq!(traceparent(&seen.head), PARENT);
    assert!(!seen.head.to_lowercase().contains("relais-received-at"), "{}", seen.head);
    running.stop();
}

#[test]
fn the_variables_of_open_telemetry_are_enough() {
    let mut collector = Collector::start();
    let target = Target::start();
    let telemetry = collector.settings("x");
    let endpoint = telemetry.split('"').nth(1).unwrap().to_owned();
    let site = Site::with(&format!(
        "{HOOK}[[route]]\non = \"Ordered\"\naggregate_type = \"Order\"\ndestination = \"shop\"\n{}",
        to_http("shop", &target)
    ));
    let running = site.run_with(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary-otlp"),
        ("OTEL_SERVICE_NAME", "from-variables"),
    ]);
    order(&running, "m-1", &[]);
    assert_eq!(collector.span("publish shop").service, "from-variables");
    running.stop();
}
