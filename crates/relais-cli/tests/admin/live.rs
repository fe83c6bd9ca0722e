//! The stream of events: each kind fits its schema, and a monitor gets the same as a viewer.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Guarded, SETTINGS, post, wait_for};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the stream until it had each of these kinds; returns the first event of each.
fn events(guarded: &Guarded, name: &str, kinds: &[&str]) -> BTreeMap<String, Value> {
    let address = guarded.running.logged("admin http://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let token = guarded.token(name);
    write!(
        stream,
        "GET /api/v1/live HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let (mut found, mut kind) = (BTreeMap::new(), String::new());
    for line in BufReader::new(stream).lines() {
        let line = line.expect("an event in time");
        if let Some(name) = line.strip_prefix("event: ") {
            kind = name.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let event = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"));
            found.entry(kind.clone()).or_insert(event);
        }
        if kinds.iter().all(|kind| found.contains_key(*kind)) {
            return found;
        }
    }
    panic!("the stream ended with {found:?}");
}

/// Panics if a value does not fit a schema of the description.
fn assert_fits(description: &Value, schema: &str, value: &Value) {
    let reference = format!("#/components/schemas/{schema}");
    let schema = json!({ "$ref": reference, "components": description["components"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{reference}: {wrong:?}\n{value:#}");
}

/// The newest point as a history of one point.
fn as_history(sample: &Value) -> Value {
    let series = sample.as_object().unwrap().iter();
    let series: Value = series.map(|(name, value)| (name.clone(), json!([value]))).collect();
    json!({ "every_ms": 1_000, "from": null, "series": series })
}

/// The place of each value. Items of a list have one place.
fn places(value: &Value, place: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| places(value, &format!("{place}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().for_each(|value| places(value, &format!("{place}/*"), found));
        }
        _ => {
            found.insert(place.to_owned());
        }
    }
}

#[test]
fn every_event_of_the_stream_fits_its_schema_and_is_the_same_for_a_monitor() {
    let guarded = Guarded::with(SETTINGS);
    let description = guarded.with_token("vic").page("/api/openapi.json").ok();
    let stream = &description["paths"]["/api/v1/live"]["get"]["responses"]["200"]["content"];
    let words = stream["text/event-stream"]["schema"]["description"].as_str().unwrap();
    for kind in ["overview", "sample", "problem"] {
        assert!(words.contains(&format!("`{kind}`")), "{words}");
    }
    let hook = guarded.running.address("hook");
    for (id, body) in [("m-1", r#"{"type":"Order","id":"a"}"#), ("m-2", r#"{"type":"Unheard"}"#)] {
        assert_eq!(post(hook, "/hook", &[("message-id", id)], body).0, 202);
    }
    wait_for(|| {
        let overview = guarded.with_token("vic").get("/overview");
        (overview.status == 200 && overview.ok()["dead_letters_open"] == 1).then_some(())
    });
    let seen = events(&guarded, "vic", &["overview", "sample"]);
    assert_fits(&description, "Overview", &seen["overview"]);
    assert_fits(&description, "History", &as_history(&seen["sample"]));

    let monitored = events(&guarded, "mona", &["overview", "sample"]);
    let asked = guarded.with_token("mona").get("/overview").ok();
    for (kind, other) in [
        ("overview", &monitored["overview"]),
        ("sample", &monitored["sample"]),
        ("overview", &asked),
    ] {
        let (mut mine, mut theirs) = (BTreeSet::new(), BTreeSet::new());
        places(&seen[kind], "", &mut mine);
        places(other, "", &mut theirs);
        assert_eq!(mine, theirs, "{kind}");
        assert!(!other.to_string().contains("needs the role viewer"), "{other}");
    }

    // Without one of its tables the database cannot be counted.
    let database = rusqlite::Connection::open(guarded.site.path("relais.db")).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    database.execute_batch("ALTER TABLE relais_dead_letter RENAME TO elsewhere").unwrap();
    let problem = events(&guarded, "mona", &["problem"]);
    assert_fits(&description, "Problem", &problem["problem"]);
}
