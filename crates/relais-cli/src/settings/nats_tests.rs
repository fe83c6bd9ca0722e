//! The kind `nats` in whole files, with and without the connector in the build.

use std::time::Duration;

use relais_connect::nats_settings::{NatsEnvelope, NatsStart};
use relais_core::extract::Pick;

use super::{
    explain::explain,
    tests::{bad, check, good},
    *,
};

const FULL: &str = r#"
[[source]]
name = "shop"
kind = "nats"
url = "tls://relais:${KEY}@n1.example:4222,tls://n2.example"
stream = "ORDERS"
consumer = "relais"
filter = "orders.>"
start = "new"
ack_wait = "1m"
max_ack_pending = 500
prefetch = 50
prefetch_bytes = "1MiB"
event_type = "header:event-type"
envelope = "cloudevents"
domain = "leaf"
[[route]]
on = "OrderPlaced"
destination = "billing"
[[destination]]
name = "billing"
kind = "nats"
url = "nats://n.example"
nkey = "SUACANARY"
subject = "billing.{{header:tenant}}.{{ event_type }}"
envelope = "cloudevents"
"#;

#[test]
fn every_key_of_a_source_and_a_destination_is_read() {
    let (settings, _) = good(FULL);
    let SourceSettings { origin, mapping, .. } = &settings.sources[0];
    let SourceOrigin::Nats(source) = origin else { panic!("{origin:?}") };
    assert_eq!((source.stream.as_str(), source.consumer.as_str()), ("ORDERS", "relais"));
    assert_eq!((source.filter.as_deref(), source.start), (Some("orders.>"), NatsStart::New));
    assert_eq!((source.ack_wait, source.max_ack_pending), (Duration::from_secs(60), 500));
    assert_eq!((source.prefetch, source.prefetch_bytes), (50, 1 << 20));
    assert_eq!(
        (source.envelope, source.domain.as_deref()),
        (NatsEnvelope::CloudEvents, Some("leaf"))
    );
    assert_eq!(mapping.message_id, Pick::header("Nats-Msg-Id"));
    let TargetConfig::Nats(target) = &settings.destinations[0].target else {
        panic!("another kind")
    };
    assert_eq!(target.subject.to_string(), "billing.{{header:tenant}}.{{event_type}}");
    assert!(target.nkey.is_some());
    assert_eq!(settings.destinations[0].retry, RetryPolicy::default());
    let lines: Vec<String> = explain(&settings).into_iter().flat_map(|one| one.lines).collect();
    for expected in [
        "nats, stream ORDERS, consumer relais at tls://n1.example:4222,tls://n2.example, \
         CloudEvents",
        "nats, subject `billing.{{header:tenant}}.{{event_type}}` at nats://n.example, CloudEvents",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
}

#[test]
fn values_that_cannot_work_are_reported() {
    check(
        "[[source]]\nname = \"m\"\nkind = \"nats\"\nurl = \"http://CANARY\"\n\
         stream = \"a.b\"\nconsumer = \"c\"\nfilter = \"a..b\"\n\
         [[destination]]\nname = \"d\"\nkind = \"nats\"\nurl = \"nats://h\"\n\
         subject = \"orders.*\"\nnkey = \"CANARY\"\n",
        &[
            "relais.toml:4:7: source[m].url: must start with tls:// or nats://",
            "relais.toml:5:10: source[m].stream: `a.b` must have 1 to 255 bytes without spaces, `.`, \
             `*`, `>`, `/` and `\\`",
            "relais.toml:7:10: source[m].filter: `a..b` has an empty part; parts are separated by one `.`",
            "relais.toml:12:11: destination[d].subject: `orders.*` has a wildcard; a message has \
             one subject",
            "relais.toml:13:8: destination[d].nkey: is not the seed of a user's nkey; it starts \
             with `SU`",
        ],
    );
}

#[test]
fn keys_that_do_not_fit_together_are_reported() {
    let errors =
        bad("[[source]]\nname = \"m\"\nkind = \"nats\"\nurl = \"nats://a:b@h\"\nstream = \"S\"\n\
         consumer = \"c\"\nnkey = \"SUA\"\ntls_ca = \"ca.pem\"\ntls_key = \"key.pem\"\n\
         [[destination]]\nname = \"d\"\nkind = \"nats\"\nurl = \"tls://t@h\"\n\
         subject = \"s\"\ncredentials = \"user.creds\"\n");
    for part in [
        "source[m].nkey: is a second login",
        "source[m].tls_ca: needs a `url` that starts with tls://",
        "source[m].tls_certificate: is missing beside `tls_key`",
        "destination[d].credentials: is a second login",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
