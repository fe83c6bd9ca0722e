//! The tutorial from Kafka to Salesforce, followed to the letter: its table, its file, its event and its commands,
//! with the hosts of a test.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/broker.rs"]
mod broker;
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::{fs, net::TcpListener, path::Path, process::Command};

use broker::{Broker, Topic};
use org::{Org, until};
use salesforce_sim::SimulatorConfig;
use support::{Running, Said, Site, assert_said, postgres::PostgresSchema};

const PAGE: &str = "../../docs/tutorial-kafka-salesforce.md";
/// The secrets that the page asks for.
const SECRETS: [(&str, &str); 3] =
    [("DB_PASSWORD", "unused"), ("SF_CLIENT_ID", "app"), ("SF_CLIENT_SECRET", "hush-hush")];

/// The code blocks of the page in one language.
fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let parts = page.split("```").skip(1).step_by(2);
    let of = |part: &str| {
        let (head, code) = part.split_once('\n')?;
        (head == language).then(|| code.to_owned())
    };
    parts.filter_map(of).collect()
}

/// The one block in a language.
fn block(language: &str) -> String {
    let mut all = blocks(language);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The lines of shell blocks that call the program.
fn commands() -> Vec<Vec<String>> {
    let all = blocks("sh").concat();
    let lines = all.lines().filter_map(|line| line.strip_prefix("relais "));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The file of the page with hosts and names of this test.
fn configuration(schema: &PostgresSchema, topic: &Topic<'_>, broker: &Broker, org: &Org) -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (group, login) = (format!("group = \"{}\"", topic.name), org.url());
    let mut file = block("toml");
    for (there, here) in [
        (
            "postgres://relais:${DB_PASSWORD}@db.example/families?sslmode=verify-full",
            schema.url.as_str(),
        ),
        ("127.0.0.1:7070", free.as_str()),
        ("kafka-1.example:9092,kafka-2.example:9092", broker.address.as_str()),
        ("group = \"families\"", group.as_str()),
        ("members-created", topic.name.as_str()),
        ("https://acme.my.salesforce.com", login.as_str()),
    ] {
        assert_eq!(file.matches(there).count(), 1, "{there}: {file}");
        file = file.replace(there, here);
    }
    file
}

fn relais(site: &Site, args: &[String]) -> Said {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = site.command(&args).envs(SECRETS).output().unwrap();
    Said::from(output)
}

/// Header and value as the tool of the page gets them.
fn produce(topic: &Topic<'_>) {
    let line = block("text");
    let (_, rest) = line.split_once("echo '").unwrap();
    let (record, tool) = rest.split_once("' |\n").unwrap();
    for option in ["parse.headers=true", "'headers.delimiter=|'", "--topic members-created"] {
        assert!(tool.contains(option), "{tool}");
    }
    let (headers, value) = record.split_once('|').unwrap();
    let header = headers.split_once(':').unwrap();
    topic.send("F-8842", &[header], Some(value.as_bytes()));
}

#[test]
fn every_step_of_the_tutorial_works_as_written() {
    let install = blocks("sh").into_iter().find(|block| block.contains("cargo install")).unwrap();
    assert!(install.contains("--features kafka"), "the file has a source of Kafka: {install}");
    let Some(broker) = Broker::from_environment() else { return };
    let Some(schema) = PostgresSchema::new() else { return };
    let org = Org::start(SimulatorConfig::default());
    let topic = broker.topic("tutorial", 1);
    schema.execute(&format!("SET search_path = {}; {}", schema.name, block("sql")));
    let site = Site::with(&configuration(&schema, &topic, &broker, &org));

    let commands = commands();
    let [check, run, status, explain] = &commands[..] else { panic!("{commands:?}") };
    assert_said(&relais(&site, check), 0, &["ok; next:"]);
    let mut program: Command = site.command(&run.iter().map(String::as_str).collect::<Vec<_>>());
    program.args(["--log", "json"]).envs(SECRETS);
    let running = Running::start(program, "\"message\":\"running\"");
    running.drain();
    assert_said(&relais(&site, status), 0, &["HTTP:SFDC:BulkV2:Contact"]);
    produce(&topic);
    until(|| org.records("Contact").len() == 2);
    for (id, name) in [("M-1", "Ann"), ("M-2", "Ben")] {
        let record = org.record("Contact", id);
        assert_eq!((&record["FirstName"], &record["Family__c"]), (&name.into(), &"F-8842".into()));
    }
    let delivered = "SELECT id::text FROM relais_outbox WHERE status = 'DISPATCHED'";
    until(|| schema.texts(delivered).len() == 2);
    let story = relais(&site, explain);
    for part in [&topic.name, "inbox:1", "outbox:1", "outbox:2", "bulk job", "delivered to"] {
        assert_said(&story, 0, &[part]);
    }
    assert_eq!(running.stop().code, 0);
}
