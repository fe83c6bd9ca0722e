//! Every kind of connector in the API and in the flow picture. No server is there: the program starts without.
#![cfg(all(feature = "amqp", feature = "kafka", feature = "nats", feature = "rabbitmq"))]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    browser::Browser,
    support::{Running, Site, get},
};

/// Time limit of the first figures, and the pause between requests.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:9";

const SOURCES: [(&str, &str); 6] = [
    ("amqp", "url = \"amqp://NOWHERE\"\naddress = \"a\""),
    ("http", "listen = \"127.0.0.1:0\""),
    ("kafka", "brokers = \"NOWHERE\"\ngroup = \"a\"\ntopics = [\"a\"]"),
    ("nats", "url = \"nats://NOWHERE\"\nstream = \"A\"\nconsumer = \"a\""),
    ("rabbitmq", "url = \"amqp://a:b@NOWHERE/%2f\"\nqueue = \"a\""),
    ("servicebus", SERVICE_BUS),
];

const DESTINATIONS: [(&str, &str); 8] = [
    ("amqp", "url = \"amqp://NOWHERE\"\naddress = \"a\""),
    ("http", "url = \"http://NOWHERE/a\"\nallow_private = true"),
    ("kafka", "brokers = \"NOWHERE\"\ntopic = \"a\""),
    ("log", ""),
    ("nats", "url = \"nats://NOWHERE\"\nsubject = \"a\""),
    ("rabbitmq", "url = \"amqp://a:b@NOWHERE/%2f\"\nexchange = \"\"\nrouting_key = \"a\""),
    (
        "salesforce",
        "object = \"Contact\"\napi = \"collections\"\nlogin_url = \"http://NOWHERE\"\n\
         client_id = \"a\"\nclient_secret = \"b\"\ncolumns = { LastName = \"name\" }",
    ),
    ("servicebus", SERVICE_BUS),
];

const SERVICE_BUS: &str = "connection = \"Endpoint=sb://NOWHERE;SharedAccessKeyName=a;\
                           SharedAccessKey=YQ==;UseDevelopmentEmulator=true\"\nqueue = \"a\"";

type KindTable = [(&'static str, &'static str)];

/// Starts the program with a source and a destination of each of these kinds.
fn start(sources: &KindTable, destinations: &KindTable) -> (Site, Running) {
    let mut file =
        String::from("[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    for (section, kinds) in [("source", sources), ("destination", destinations)] {
        for (kind, keys) in kinds {
            let keys = keys.replace("NOWHERE", NOWHERE);
            file +=
                &format!("[[{section}]]\nname = \"{section}-{kind}\"\nkind = \"{kind}\"\n{keys}\n");
        }
    }
    let site = Site::with(&file);
    let running = site.run();
    (site, running)
}

/// Returns names with their kinds, as this program knows them.
fn expected(section: &str, kinds: &KindTable) -> BTreeMap<String, String> {
    kinds.iter().map(|(kind, _)| (format!("{section}-{kind}"), (*kind).to_owned())).collect()
}

/// Returns the state once the program has counted its rows.
fn overview(running: &Running) -> Value {
    let started = Instant::now();
    loop {
        let (status, body) = get(running.logged("admin http://"), "/api/v1/overview");
        if status == 200 {
            return serde_json::from_str(&body).unwrap();
        }
        assert!(status == 503 && started.elapsed() < PATIENCE, "{body}");
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn every_kind_of_connector_is_in_the_api() {
    let (_site, running) = start(&SOURCES, &DESTINATIONS);
    let overview = overview(&running);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sources = overview["sources"].as_array().unwrap().iter();
    let sources: BTreeMap<_, _> =
        sources.map(|source| (text(&source["name"]), text(&source["kind"]))).collect();
    assert_eq!(sources, expected("source", &SOURCES), "{overview:#}");
    let destinations = overview["destinations"].as_object().unwrap().iter();
    let destinations: BTreeMap<_, _> =
        destinations.map(|(name, guard)| (name.clone(), text(&guard["kind"]))).collect();
    assert_eq!(destinations, expected("destination", &DESTINATIONS), "{overview:#}");
    assert_eq!(running.stop().code, 0);
}

/// Returns the boxes of the flow picture: names with their kinds.
const BOXES: &str = "return [...document.querySelectorAll('.flow .box')].map((box) => \
    [box.querySelector('h4').textContent, box.querySelector('.box-head .soft')?.textContent ?? '']);";

#[test]
fn every_kind_of_connector_is_in_the_flow_picture() {
    // A column shows two boxes beside a list of what needs attention.
    let parts = SOURCES.chunks(2).chain([&[][..]]).zip(DESTINATIONS.chunks(2));
    for (sources, destinations) in parts {
        let (_site, running) = start(sources, destinations);
        let Some(browser) = Browser::open(running.logged("admin http://")) else { return };
        let mut all = expected("source", sources);
        all.extend(expected("destination", destinations));
        browser.until("the kinds of all boxes", || {
            let boxes: Vec<(String, String)> =
                serde_json::from_value(browser.script(BOXES, &[])).unwrap_or_default();
            let shown: BTreeMap<_, _> =
                boxes.into_iter().filter(|(name, _)| all.contains_key(name)).collect();
            (shown == all).then_some(())
        });
        drop(browser);
        assert_eq!(running.stop().code, 0);
    }
}
