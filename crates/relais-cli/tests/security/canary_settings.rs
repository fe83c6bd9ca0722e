//! Settings with a secret of its own in every place that takes one, and what goes wrong with them.

use std::{net::SocketAddr, path::Path};

use crate::{
    canary::{CANARY, Said},
    support::Site,
};

/// Files that some of them name.
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("ADMIN_TOKEN", "CANARY-admin-token"),
    ("DESTINATION_KEY", "CANARY-destination-key"),
    ("ORG_SECRET", "CANARY-org-secret"),
    // of "CANARY-hmac-of-the-environment"
    ("SIGNING", "whsec_Q0FOQVJZLWhtYWMtb2YtdGhlLWVudmlyb25tZW50"),
];

/// Each goes to the destination of the same name.
pub(crate) const EVENTS: [&str; 6] = ["gossip", "tls", "org", "refresh", "topic", "PLANTED"];

/// `collector` takes traces, `gossip` sends back what it gets, `plain` speaks no TLS.
pub(crate) fn settings(collector: SocketAddr, gossip: SocketAddr, plain: SocketAddr) -> String {
    let routes: String = EVENTS
        .iter()
        .map(|event| format!("[[route]]\non = \"{event}\"\ndestination = \"{event}\"\n"))
        .collect();
    format!(
        r#"
[store]
url = "sqlite:relais.db"
[admin]
listen = "127.0.0.1:0"
token = "${{ADMIN_TOKEN}}"
session_key = "CANARY-session-key"
[telemetry]
otlp = "http://{collector}/CANARY-otlp-path?key=CANARY-otlp-query"
headers = {{ "x-api-key" = "CANARY-otlp-header" }}
[[source]]
name = "hook"
kind = "http"
listen = "127.0.0.1:0"
source_system = "shop"
token = "CANARY-source-token"
[[source]]
name = "signed"
kind = "http"
listen = "127.0.0.1:0"
source_system = "shop"
secrets = ["whsec_Q0FOQVJZLWhtYWMtb2YtdGhlLXNvdXJjZS0x", "${{SIGNING}}"]
{routes}
[[destination]]
name = "gossip"
kind = "http"
url = "http://{gossip}/hooks/CANARY-path/in?key=CANARY-query&b=${{DESTINATION_KEY}}"
headers = {{ authorization = "Bearer CANARY-bearer", "x-key" = "${{DESTINATION_KEY}}" }}
secret = "whsec_Q0FOQVJZLWhtYWMtb2YtdGhlLWRlc3RpbmF0aW9u"
allow_private = true
[[destination]]
name = "tls"
kind = "http"
url = "https://{plain}/CANARY-path"
headers = {{ authorization = "Bearer CANARY-bearer" }}
allow_private = true
[[destination]]
name = "org"
kind = "salesforce"
login_url = "http://{gossip}"
client_id = "client"
client_secret = "${{ORG_SECRET}}"
api = "collections"
object = "Contact"
columns = {{ LastName = "payload:/note" }}
[[destination]]
name = "refresh"
kind = "salesforce"
login_url = "http://{plain}"
client_id = "client"
client_secret = "CANARY-client-secret"
refresh_token = "CANARY-refresh-token"
refresh_token_key = "CANARY-refresh-token-key-of-32-characters"
api = "collections"
object = "Contact"
columns = {{ LastName = "payload:/note" }}
[[destination]]
name = "PLANTED"
kind = "log"
path = "out.jsonl"
{}"#,
        kafka()
    )
}

#[cfg(feature = "kafka")]
fn kafka() -> &'static str {
    r#"
[[destination]]
name = "topic"
kind = "kafka"
brokers = "127.0.0.1:1"
topic = "t"
encoder = "confluent-avro"
registry_url = "https://127.0.0.1:1"
registry_user = "me"
registry_password = "CANARY-registry-password"
[destination.options]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "CANARY-user"
"sasl.password" = "CANARY-sasl"
[[source]]
name = "topic"
kind = "kafka"
brokers = "127.0.0.1:1"
group = "g"
topics = ["t"]
source_system = "shop"
decoder = "confluent-avro"
registry_url = "https://127.0.0.1:1"
registry_token = "CANARY-registry-token"
[source.options]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-256"
"sasl.username" = "CANARY-user"
"sasl.password" = "CANARY-sasl"
"ssl.key.password" = "CANARY-key-password"
"#
}

#[cfg(not(feature = "kafka"))]
fn kafka() -> &'static str {
    ""
}

/// A line with a secret, and wrong variants of it.
fn mistakes(line: &str) -> Vec<String> {
    let (key, value) = line.split_once(" = ").unwrap();
    let bare = value.trim_matches('"');
    vec![
        format!("{key} = \"{bare}"),
        format!("{key} = '{bare}\""),
        format!("{key} = {bare}"),
        format!("{key} = \"\"\"{bare}"),
        format!("{key} = \"{bare}\" \"{bare}\""),
        format!("{key} = \"\\{bare}\""),
        format!("{key} = \"{bare}\u{0}\""),
        format!("{key} \"{bare}\""),
        format!("{key}: \"{bare}\""),
        format!("{key} = [\"{bare}\"]"),
        format!("{key} = [[\"{bare}\"], 5]"),
        format!("{key} = {{ x = \"{bare}\" }}"),
        format!("{key} = {{ \"x\" = [\"{bare}\"] }}"),
        format!("{key} = \"{bare}\"\n{key} = \"{bare}\""),
        format!("{key}.x = \"{bare}\""),
        format!("{key}x = \"{bare}\""),
        format!("{key} = \"${{{bare}}}\""),
        format!("{key} = \"${{{bare}\""),
        format!("{key} = \"${{NOT_SET}}{bare}\""),
        format!("{key} = \"{bare}\\n\""),
        format!("{key} = \"http://u:{bare}@h:99999/{bare}?{bare}\""),
        format!("{key} = \"https://u:{bare}@127.0.0.1/{bare}?{bare}\""),
        format!("{key} = 5 # {bare}"),
        bare.to_owned(),
        format!("\"{bare}"),
    ]
}

/// It cannot run: a key that can is no word to search for.
const SIGNED_IN: &str = r#"
[[destination]]
name = "jwt"
kind = "salesforce"
login_url = "https://CANARY-user:CANARY-password@acme.example"
client_id = "client"
username = "somebody"
private_key = "CANARY-pem"
api = "collections"
object = "Contact"
columns = { LastName = "payload:/note" }
[[destination]]
name = "nats"
kind = "nats"
url = "tls://nats.example"
subject = "orders"
nkey = "CANARY-nkey"
"#;

fn everything() -> String {
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    settings(closed, closed, closed) + SIGNED_IN
}

#[test]
fn wrong_settings_are_reported_without_their_secrets() {
    let all = everything();
    let lines: Vec<&str> = all.lines().filter(|line| holds_one_secret(line)).collect();
    assert!(lines.len() >= 8, "{lines:?}");
    let site = Site::new();
    let check = |settings: &str, args: &[&str]| {
        site.write("relais.toml", settings);
        let output = site.command(args).envs(VARIABLES).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let mut said = Said::default();
    for args in [&["check"][..], &["check", "--json"], &["run"], &["status"]] {
        said.note(&format!("{args:?}"), check(&all, args));
    }
    for line in lines {
        for mistake in mistakes(line) {
            let wrong = all.replacen(line, &mistake, 1);
            said.note(&format!("`{mistake}`"), check(&wrong, &["check", "--offline"]));
        }
    }
    said.holds_no_secret();
}

/// `key = "CANARY-…"` and the like, and nothing else.
fn holds_one_secret(line: &str) -> bool {
    line.contains(CANARY) && line.ends_with('"') && !line.starts_with('"')
}

#[test]
fn every_key_that_takes_a_secret_is_tried() {
    let all = everything();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    let mut keys = 0;
    for line in reference.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(key), Some(kind)) = (cells.next(), cells.next()) else { continue };
        if kind.contains("secret") {
            keys += 1;
            let key = key.split('`').nth(1).unwrap();
            let tried = all.lines().any(|line| line.starts_with(&format!("{key} =")));
            assert!(tried, "`{key}` takes a secret and is not tried here");
        }
    }
    assert!(keys >= 8, "{keys}");
}
