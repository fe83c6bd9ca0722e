//! The kind `amqp` in whole files, with and without the connector in the build.

use relais_connect::{amqp_settings::AmqpEnvelope, rabbitmq_settings::WithoutId};
use relais_core::extract::Pick;

use super::{
    explain::explain,
    tests::{bad, check, good},
    *,
};

const FULL: &str = r#"
[[source]]
name = "shop"
kind = "amqp"
url = "amqps://relais:${KEY}@broker.example"
address = "orders"
capability = "queue"
event_type = "header:subject"
prefetch = 50
prefetch_bytes = "1MiB"
without_id = "new"
envelope = "cloudevents"
[[route]]
on = "OrderPlaced"
destination = "billing"
[[destination]]
name = "billing"
kind = "amqp"
url = "amqp://relais:${KEY}@broker.example/hosts"
address = "billing.{{header:tenant}}"
message_bytes_max = "1MiB"
"#;

#[test]
fn every_key_of_a_source_and_a_destination_is_read() {
    let (settings, _) = good(FULL);
    let SourceSettings { origin, mapping, .. } = &settings.sources[0];
    let SourceOrigin::Amqp(source) = origin else { panic!("{origin:?}") };
    assert_eq!((source.address.as_str(), source.prefetch), ("orders", 50));
    assert_eq!((source.prefetch_bytes, source.without_id), (1 << 20, WithoutId::New));
    assert_eq!(source.envelope, AmqpEnvelope::CloudEvents);
    assert_eq!(mapping.message_id, Pick::header("message-id"));
    let TargetConfig::Amqp(target) = &settings.destinations[0].target else {
        panic!("another kind")
    };
    assert_eq!(target.address.to_string(), "billing.{{header:tenant}}");
    assert_eq!(target.message_bytes_max, Some(1 << 20));
    assert_eq!(settings.destinations[0].retry, RetryPolicy::default());
    let lines: Vec<String> = explain(&settings).into_iter().flat_map(|one| one.lines).collect();
    for expected in [
        "amqp, address orders at amqps://broker.example, CloudEvents",
        "amqp, address `billing.{{header:tenant}}` at amqp://broker.example/hosts",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
}

#[test]
fn values_that_cannot_work_are_reported() {
    check(
        "[[source]]\nname = \"m\"\nkind = \"amqp\"\nurl = \"http://CANARY\"\naddress = \"\"\n\
         [[destination]]\nname = \"d\"\nkind = \"amqp\"\nurl = \"amqp://h\"\n\
         address = \"{{kye}}\"\n",
        &[
            "relais.toml:4:7: source[m].url: must start with amqps:// or amqp://",
            "relais.toml:5:11: source[m].address: must have 1 to 2048 bytes",
            "relais.toml:10:11: destination[d].address: `{{kye}}` has an unknown place; use \
             `{{event_type}}`, `{{aggregate_type}}`, `{{aggregate_id}}`, `{{key}}`, \
             `{{destination}}`, `{{header:NAME}}` or `{{payload:/JSON/POINTER}}`",
        ],
    );
}

#[test]
fn keys_that_do_not_fit_together_are_reported() {
    let errors =
        bad("[[source]]\nname = \"m\"\nkind = \"amqp\"\nurl = \"amqp://h\"\naddress = \"q\"\n\
         message_id = \"position\"\ntls_ca = \"ca.pem\"\ntls_key = \"key.pem\"\n");
    for part in [
        "source[m].message_id: AMQP has no positions",
        "source[m].tls_ca: needs a `url` that starts with amqps://",
        "source[m].tls_certificate: is missing beside `tls_key`",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
