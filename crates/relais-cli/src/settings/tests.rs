//! Whole files: what they give, and the exact words when they do not fit.

use std::{path::Path, time::Duration};

use relais::http::OnInvalidBody;
use relais_core::{
    breaker::BreakerPolicy, decode::Decoder, extract::Pick, outbox::OnDeadLetter, query::Retention,
};

use super::{explain::explain, *};

fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("CANARY-token".into()),
        "KEY" => Some("CANARY-key".into()),
        _ => None,
    }
}

pub(super) fn good(text: &str) -> (Settings, Vec<ConfigFinding>) {
    read(Path::new("relais.toml"), text, &environment).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn bad(text: &str) -> String {
    match read(Path::new("relais.toml"), text, &environment) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

pub(super) fn check(text: &str, expected: &[&str]) {
    assert_eq!(bad(text).lines().collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn an_empty_file_has_every_default() {
    let (settings, warnings) = good("");
    assert_eq!(settings.store.url.to_string(), "sqlite:relais.db");
    assert!(settings.store.migrate && !settings.store.unsafe_durability);
    assert!(settings.admin.is_none());
    assert_eq!(settings.retention, Retention::default());
    assert_eq!(settings.lease, Duration::from_secs(10));
    assert_eq!(settings.inbox_retry.max, Duration::from_secs(600));
    assert!(warnings.is_empty());
}

#[test]
fn connections_are_set_for_postgres_and_certificates_need_their_key() {
    let (settings, _) = good(
        "[store]\nurl = \"postgres://r@db/x\"\nschema = \"messages\"\nconnections = 4\n\
         [admin]\ntls_certificate = \"tls/cert.pem\"\ntls_key = \"/etc/key.pem\"\n",
    );
    let options = settings.store.postgres();
    assert_eq!((options.schema.as_deref(), options.connections_max), (Some("messages"), 4));
    let admin = settings.admin.unwrap();
    assert_eq!(admin.tls_certificate.unwrap(), Path::new("tls/cert.pem"));
    assert_eq!(admin.tls_key.unwrap(), Path::new("/etc/key.pem"));
    assert!(bad("[store]\nschema = \"messages\"\n").contains("postgres://"));
    let few = bad("[store]\nurl = \"postgres://r@db/x\"\nconnections = 3\n");
    assert!(few.contains("from 4 to 1000"), "{few}");
    assert!(bad("[admin]\ntls_key = \"k\"\n").contains("needs `tls_certificate`"));
    let source = "[[source]]\nname = \"h\"\nkind = \"http\"\ntls_certificate = \"c\"\n";
    assert!(bad(source).contains("needs `tls_key`"));
}

const FULL: &str = r#"
[store]
url = "sqlite:relais.db"
[admin]
listen = "0.0.0.0:7070"
token = "${TOKEN}"
[[source]]
name = "hook"
kind = "http"
listen = "localhost:7071"
source_system = "crm-gateway"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "payload:/familyId"
decoder = "json-latin1"
invalid = "reject"
body_max = "1MiB"
secrets = ["${KEY}", "CANARY-old"]
[[route]]
on = "MembersCreated"
each = "payload:/memberIds"
aggregate_type = "Member"
event_type = "MembersUpsertRequested"
version = "payload:/asOfVersion"
destination = "orders"
[[destination]]
name = "orders"
kind = "http"
url = "https://example.com/orders?code=CANARY-query"
method = "PUT"
headers = { Authorization = "Bearer ${TOKEN}" }
secret = "CANARY-secret"
cloudevents = true
on_dead_letter = "skip"
[destination.retry]
attempts = 7
first = "1s"
factor = 1.5
max = "1h"
jitter = false
[destination.limits]
rate = "50/s"
concurrency = 3
timeout = "5s"
[destination.breaker]
window = 10
failure_rate = 20
open_for = "1m"
[[destination]]
name = "file"
kind = "log"
path = "out.jsonl"
[inbox]
name = "billing"
unknown_type_wait = "1h"
ignore = ["Heartbeat", "OrderViewed"]
[inbox.retry]
attempts = 3
[retention]
processed = "60d"
dispatched = "never"
[lanes]
lease = "20s"
"#;

#[test]
fn every_key_arrives() {
    let (settings, warnings) = good(FULL);
    assert_eq!(warnings, []);
    let source = &settings.sources[0];
    assert_eq!(source.mapping.message_id, Pick::Header("message-id".into()));
    assert_eq!(source.mapping.decoder, Decoder::JsonLatin1);
    let SourceOrigin::Http(http) = &source.origin else { panic!("{source:?}") };
    assert_eq!(http.listen.to_string(), "127.0.0.1:7071");
    assert_eq!(
        (http.invalid, http.body_max, http.signing().len()),
        (OnInvalidBody::Reject, 1 << 20, 2)
    );
    let route = &settings.routes[0].route;
    assert_eq!(route.each.as_deref(), Some("/memberIds"));
    assert_eq!(route.version.as_deref(), Some("/asOfVersion"));
    let orders = &settings.destinations[0];
    assert_eq!((orders.retry.attempts_max, orders.retry.factor), (7, 1.5));
    assert_eq!(orders.on_dead_letter, OnDeadLetter::Skip);
    assert_eq!((orders.limits.concurrency, orders.limits.timeout), (3, Duration::from_secs(5)));
    let minute = Duration::from_secs(60);
    assert_eq!(
        orders.breaker,
        BreakerPolicy::default().window(10).failure_rate(20).open_for(minute)
    );
    assert_eq!(settings.inbox_retry.attempts_max, 3);
    assert_eq!(settings.inbox_name, "billing");
    assert_eq!(settings.unknown_type_wait, Duration::from_secs(3_600));
    assert_eq!(settings.ignored.event_types, ["Heartbeat", "OrderViewed"]);
    assert_eq!(settings.retention.processed_seconds, 60 * 86_400);
    assert_eq!(settings.retention.dispatched_seconds, Retention::NEVER_SECONDS);
    assert_eq!(settings.lease, Duration::from_secs(20));
}

/// The numbers of the documents that relais was built from.
#[test]
fn the_numbers_of_the_documents_are_defaults_or_can_be_configured() {
    let (settings, _) = good("[[destination]]\nname = \"file\"\nkind = \"log\"\n");
    let file = &settings.destinations[0];
    assert_eq!((file.limits.concurrency, file.limits.timeout), (10, Duration::from_secs(30)));
    assert!(file.limits.rate.is_none());
    assert_eq!(settings.retention.dispatched_seconds, 7 * 86_400);
    let breaker = file.breaker;
    let half_a_minute = Duration::from_secs(30);
    assert_eq!((breaker.window, breaker.failure_rate, breaker.open_for), (50, 50, half_a_minute));
    let (settings, _) = good(
        "[[destination]]\nname = \"file\"\nkind = \"log\"\n[destination.limits]\nrate = \"50/s\"\n\
         [destination.retry]\nattempts = 3\n",
    );
    let file = &settings.destinations[0];
    let rate = file.limits.rate.as_ref().unwrap();
    assert_eq!((rate.calls, rate.period), (50, Duration::from_secs(1)));
    assert_eq!(file.retry.attempts_max, 3);
}

#[test]
fn no_secret_shows_in_debug_or_explanation() {
    let (settings, _) = good(FULL);
    let explained = serde_json::to_string(&explain(&settings)).unwrap();
    let shown = format!("{settings:?} {settings:#?} {explained}");
    assert!(!shown.contains("CANARY"), "{shown}");
    assert!(explained.contains("http, PUT https://example.com/…"), "{explained}");
}

#[test]
fn no_secret_shows_in_an_error() {
    let text = FULL
        .replace("token =", "tokne =")
        .replace("secret =", "secrte =")
        .replace("https://example.com", "ftp://CANARY@example.com")
        .replace("sqlite:relais.db", "mysql://root:CANARY@db/x")
        .replace("\"1MiB\"", "\"${KEY}\"");
    let errors = bad(&text);
    assert_eq!(errors.lines().count(), 6, "{errors}");
    assert!(!errors.contains("CANARY"), "{errors}");
    let syntax = bad("[admin]\ntoken = \"CANARY\nlisten = 5");
    assert!(!syntax.contains("CANARY"), "{syntax}");
}

#[test]
fn unknown_keys_name_their_line_and_the_nearest_key() {
    check(
        "[stroe]\nurl = \"sqlite:x\"\n\n[store]\nurll = \"sqlite:x\"\n",
        &[
            "relais.toml:1:2: stroe: unknown key; did you mean `store`?",
            "relais.toml:5:1: store.urll: unknown key; did you mean `url`?",
        ],
    );
    check(
        "[[destination]]\nname = \"orders\"\nkind = \"log\"\ntimeout = \"5s\"\nurl = \"x\"\n\
         [destination.retry]\natempts = 3\n  colour = 1\n",
        &[
            "relais.toml:4:1: destination[orders].timeout: unknown key; it belongs under \
             `[destination.limits]`",
            "relais.toml:5:1: destination[orders].url: unknown key; it is for kinds `amqp`, `http`, `nats` and `rabbitmq`",
            "relais.toml:7:1: destination[orders].retry.atempts: unknown key; did you mean \
             `attempts`?",
            "relais.toml:8:3: destination[orders].retry.colour: unknown key; known keys: \
             `attempts`, `first`, `factor`, `max`, `jitter`",
        ],
    );
}

#[test]
fn unknown_words_name_the_nearest_word() {
    check(
        "[[source]]\nname = \"hook\"\nkind = \"htpp\"\n[[destination]]\nname = \"a\"\n\
         kind = \"log\"\non_dead_letter = \"parc\"\n",
        &[
            "relais.toml:3:8: source[hook].kind: `htpp` is not known here; did you mean `http`?",
            "relais.toml:7:18: destination[a].on_dead_letter: `parc` is not known here; did you \
             mean `park`?",
        ],
    );
}

#[test]
fn what_is_not_in_this_build_says_so() {
    check(
        "[store]\nurl = \"oracle://db\"\n",
        &["relais.toml:2:7: store.url: oracle is not in this build yet; this version has: \
             sqlite, postgres"],
    );
}

#[test]
fn values_of_the_wrong_kind_are_all_reported() {
    check(
        "[store]\nmigrate = \"yes\"\nurl = 5\n[lanes]\nlease = 10\n[retention]\n\
         processed = \"soon\"\n[inbox.retry]\nattempts = 0\nfirst = \"1h\"\n[source]\n[[admin]]\n",
        &[
            "relais.toml:2:11: store.migrate: expected true or false, found string",
            "relais.toml:3:7: store.url: expected a string, found integer",
            "relais.toml:5:9: lanes.lease: expected a string, found integer",
            "relais.toml:7:13: retention.processed: `soon` is not a duration; write for example \
             \"100ms\", \"30s\", \"5m\" or \"30d\"",
            "relais.toml:9:12: inbox.retry.attempts: must be from 1 to 1000",
            "relais.toml:11:1: source: may come several times; write `[[source]]`",
            "relais.toml:12:1: admin: is one table; write `[admin]`, not `[[admin]]`",
        ],
    );
}

#[test]
fn the_mark_between_an_inbox_and_a_source_is_in_no_name() {
    check(
        "[inbox]\nname = \"a::b\"\n[[source]]\nname = \"hook\"\nkind = \"http\"\n\
         listen = \"127.0.0.1:0\"\nsource_system = \"a::b\"\n",
        &[
            "relais.toml:2:8: inbox.name: must not contain `::`",
            "relais.toml:7:17: source[hook].source_system: must not contain `::`, which names an inbox",
        ],
    );
}

#[test]
fn a_missing_variable_is_named_with_its_line() {
    check(
        "[admin]\ntoken = \"${NOPE}\"\n",
        &["relais.toml:2:9: admin.token: environment variable `NOPE` is not set; set it, or \
           write `$${` for a plain `${`"],
    );
}

#[test]
fn sections_that_do_not_fit_together_are_refused() {
    check(
        "[admin]\nlisten = \"0.0.0.0:7070\"\n",
        &["relais.toml:2:10: admin.listen: is not a loopback address; set `admin.token` or \
           [[admin.tokens]], or use 127.0.0.1"],
    );
    check(
        "[[destination]]\nname = \"a\"\nkind = \"log\"\n[[destination]]\nname = \"a\"\n\
         kind = \"log\"\n",
        &["relais.toml:5:8: destination[a].name: another destination is named `a`; names are \
           unique"],
    );
    check(
        "[[source]]\nname = \"a\"\nkind = \"http\"\n[[source]]\nname = \"b\"\nkind = \"http\"\n\
",
        &["relais.toml:4:1: source[b].listen: 127.0.0.1:7071 is taken by source `a`; give each \
           its own address"],
    );
    check(
        "[lanes]\nlease = \"500ms\"\n[retention]\ndispatched = \"1h\"\n[[destination]]\n\
         name = \"a\"\nkind = \"log\"\n[destination.retry]\nfirst = \"1h\"\nmax = \"2h\"\n\
         jitter = false\n",
        &[
            "relais.toml:2:9: lanes.lease: `500ms` must be from 2s to 1h",
            "relais.toml:4:14: retention.dispatched: 1h is not longer than the retries may take \
             (1d13h)",
        ],
    );
    check(
        "[[source]]\nname = \"a/b\"\nkind = \"http\"\nmessage_id = \"position\"\n",
        &[
            "relais.toml:2:8: source[a/b].name: is a path of the url too; use letters, digits, \
             `-`, `_` and `.`",
            "relais.toml:4:14: source[a/b].message_id: an http message has no position; use \
             `header:NAME` or `payload:/JSON/POINTER`",
        ],
    );
}

#[test]
fn ids_are_kept_for_longer_than_a_message_may_be_tried() {
    check(
        "[retention]\nprocessed = \"1h\"\nhandled = \"7h\"\n[inbox.retry]\nfirst = \"1h\"\n\
         max = \"2h\"\njitter = false\n",
        &[
            "relais.toml:2:13: retention.processed: 1h is not longer than the retries may take (1d13h)",
            "relais.toml:3:11: retention.handled: 7h is not longer than the retries may take (1d13h)",
        ],
    );
}

#[test]
fn targets_must_be_public_unless_allowed() {
    for host in ["127.0.0.1", "localhost", "10.0.0.1", "[::1]", "169.254.169.254"] {
        let text = format!(
            "[[destination]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://{host}:1/x\"\n"
        );
        assert!(bad(&text).contains("allow_private = true"), "{host}");
        good(&format!("{text}allow_private = true\n"));
    }
}

#[test]
fn a_route_to_an_undefined_destination_is_refused_with_the_nearest_name() {
    let route = |to: &str| format!("[[route]]\non = \"A\"\ndestination = \"{to}\"\n");
    let defined = "[[destination]]\nname = \"warehouse\"\nkind = \"log\"\n";
    check(
        &format!("{}{defined}", route("warehuose")),
        &[
            "relais.toml:3:15: route[#1].destination: no [[destination]] is named `warehuose`; did you \
           mean `warehouse`?",
        ],
    );
    check(
        &route("billing"),
        &[
            "relais.toml:3:15: route[#1].destination: no [[destination]] is named `billing`; define it, \
           or add one with this name and `external = true` if another program serves it",
        ],
    );
    let external = "[[destination]]\nname = \"billing\"\nexternal = true\n";
    let (settings, warnings) = good(&format!("{}{external}", route("billing")));
    assert!(warnings.is_empty() && settings.destinations.is_empty(), "{settings:?}");
    assert_eq!(settings.external, ["billing"]);
    let both = format!("{external}kind = \"log\"\n");
    assert!(bad(&both).contains("kind: unknown key; the program that serves"), "{}", bad(&both));
    assert!(bad(&external.repeat(2)).contains("names are unique"));
}

#[test]
fn batch_and_poll_have_the_values_of_other_outboxes() {
    let log = "[[destination]]\nname = \"d\"\nkind = \"log\"\n";
    let (settings, _) = good(log);
    assert_eq!((settings.destinations[0].batch, settings.store.poll.as_millis()), (1_000, 1));
    let (settings, _) = good(&format!("[store]\npoll = \"5s\"\n{log}batch = 10\n"));
    assert_eq!((settings.destinations[0].batch, settings.store.poll.as_secs()), (10, 5));
    assert!(bad(&format!("{log}batch = 0\n")).contains("destination[d].batch"));
}

#[test]
fn routes_are_checked_for_pointers_templates_and_twins() {
    check(
        "[[route]]\non = \"A\"\ndestination = \"x\"\neach = \"/ids\"\npayload = \"{{/a\"\n",
        &[
            "relais.toml:4:8: route[#1].each: `/ids` is not a place in the payload; write \
             `payload:/JSON/POINTER`",
            "relais.toml:5:11: route[#1].payload: has `{{` without `}}`",
        ],
    );
    let twins = "[[route]]\non = \"A\"\ndestination = \"x\"\n".repeat(2);
    assert!(bad(&twins).contains("relais.toml:4:1: route[#2]: the route in line 1 makes the same"));
}

#[test]
fn syntax_errors_have_a_place_and_nothing_else_is_guessed() {
    let errors = bad("[store\nurl = \"sqlite:x\"\nother = 1\n");
    assert!(errors.starts_with("relais.toml:1:"), "{errors}");
    assert!(!errors.contains("unknown key"), "{errors}");
}

#[test]
fn a_file_in_another_format_is_named_once() {
    let yaml = "# relais\n---\nstore:\n  url: sqlite:x\nsource:\n  - name: hook\n";
    for (text, format, line) in [
        (yaml, "YAML", 2),
        ("store:\n  url: sqlite:x\n", "YAML", 1),
        ("log: text\n", "YAML", 1),
        ("\n{\"store\": {\"url\": \"sqlite:x\"}}\n", "JSON", 2),
    ] {
        let start = format!("relais.toml:{line}:1: the file is {format}; relais reads TOML");
        let errors = bad(text);
        assert!(errors.starts_with(&start) && errors.lines().count() == 1, "{errors}");
    }
    assert!(!bad("[store\nurl = \"sqlite:x\"\n").contains("YAML"));
}

#[test]
fn options_of_a_library_keep_their_values() {
    relais_core::settings! {
        struct Probe {
            /// options
            options: relais_core::setting::HiddenOptions<String>;
        }
    }
    let text = "[options]\na.b = 1_000\n\"c.d\" = \"${KEY}\"\ne = true\nf.g = 5.5\nh = 0x10\n";
    let (table, _) = DeTable::parse_recoverable(text);
    let (findings, shown) = Default::default();
    let folder = Path::new("");
    let environment = &environment;
    let file = SettingsFile { file: "", text, folder, environment, findings, shown };
    let Probe { mut options } = file.root(table.get_ref()).read().unwrap();
    options.sort();
    let expected =
        [("a.b", "1000"), ("c.d", "CANARY-key"), ("e", "true"), ("f.g", "5.5"), ("h", "16")];
    assert_eq!(options, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
