//! The kind `servicebus` in whole files, with and without the connector in the build.

use super::{
    explain::explain,
    tests::{bad, good},
    *,
};

const FULL: &str = r#"
[[source]]
name = "commands"
kind = "servicebus"
connection = "Endpoint=sb://ns.example/;SharedAccessKeyName=relais;SharedAccessKey=${KEY}"
topic = "commands"
subscription = "relais"
event_type = "header:subject"
sessions = true
sessions_max = 3
[[route]]
on = "OrderPlaced"
destination = "billing"
[[destination]]
name = "billing"
kind = "servicebus"
connection = "Endpoint=sb://ns.example;SharedAccessKeyName=relais;SharedAccessKey=${KEY};EntityPath=billing"
"#;

#[test]
fn every_key_of_a_source_and_a_destination_is_read() {
    let (settings, _) = good(FULL);
    let SourceOrigin::Servicebus(source) = &settings.sources[0].origin else { panic!("its kind") };
    assert_eq!(source.address(), "commands/Subscriptions/relais");
    assert_eq!((source.sessions, source.sessions_max), (true, 3));
    let TargetConfig::Servicebus(target) = &settings.destinations[0].target else {
        panic!("another kind")
    };
    assert_eq!(target.address(), "billing");
    assert_eq!(settings.destinations[0].retry, RetryPolicy::default());
    let lines: Vec<String> = explain(&settings).into_iter().flat_map(|one| one.lines).collect();
    for expected in [
        "servicebus, commands/Subscriptions/relais at sb://ns.example, 3 sessions at a time",
        "servicebus, billing at sb://ns.example",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
}

#[test]
fn keys_that_do_not_fit_together_are_reported_without_the_key() {
    let connection = "Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=CANARY";
    let errors = bad(&format!(
        "[[source]]\nname = \"m\"\nkind = \"servicebus\"\nconnection = \"{connection}\"\n\
         topic = \"t\"\nmessage_id = \"position\"\ndead_letters = true\nsessions = true\n\
         [[destination]]\nname = \"d\"\nkind = \"servicebus\"\nconnection = \"{connection}\"\n\
         [[destination]]\nname = \"e\"\nkind = \"servicebus\"\nconnection = \"CANARY\"\nqueue = \"q\"\n"
    ));
    for part in [
        "source[m].subscription: is missing beside `topic`",
        "source[m].message_id: AMQP has no positions",
        "source[m].sessions: dead letters have no sessions",
        "destination[d].queue: is missing",
        "destination[e].connection: has a part without `=`",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert!(!errors.contains("CANARY"), "{errors}");
}
