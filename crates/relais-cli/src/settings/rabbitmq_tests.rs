//! The kind `rabbitmq` in whole files, with and without the connector in the build.

use relais_connect::rabbitmq_settings::{RabbitEnvelope, WithoutId};
use relais_core::extract::Pick;

use super::{
    explain::explain,
    tests::{bad, check, good},
    *,
};

const FULL: &str = r#"
[[source]]
name = "shop"
kind = "rabbitmq"
url = "amqps://relais:${KEY}@rabbit.example/%2f?heartbeat=20"
queue = "relais.orders"
event_type = "header:type"
prefetch = 50
prefetch_bytes = "1MiB"
without_id = "new"
envelope = "masstransit"
[[route]]
on = "OrderPlaced"
destination = "billing"
[[destination]]
name = "billing"
kind = "rabbitmq"
url = "amqp://relais:${KEY}@rabbit.example"
exchange = "billing.{{header:tenant}}"
routing_key = "{{ event_type }}"
envelope = "masstransit"
namespace = "Company.Billing"
"#;

#[test]
fn every_key_of_a_source_and_a_destination_is_read() {
    let (settings, _) = good(FULL);
    let SourceSettings { origin, mapping, .. } = &settings.sources[0];
    let SourceOrigin::Rabbitmq(source) = origin else { panic!("{origin:?}") };
    assert_eq!((source.queue.as_str(), source.prefetch), ("relais.orders", 50));
    assert_eq!((source.prefetch_bytes, source.without_id), (1 << 20, WithoutId::New));
    assert_eq!(source.envelope, RabbitEnvelope::MassTransit);
    assert_eq!(mapping.message_id, Pick::header("message-id"));
    let TargetConfig::Rabbitmq(target) = &settings.destinations[0].target else {
        panic!("another kind")
    };
    assert_eq!(target.exchange.to_string(), "billing.{{header:tenant}}");
    assert_eq!(target.routing_key.to_string(), "{{event_type}}");
    assert_eq!(settings.destinations[0].retry, RetryPolicy::default());
    let lines: Vec<String> = explain(&settings).into_iter().flat_map(|one| one.lines).collect();
    for expected in [
        "rabbitmq, queue relais.orders at amqps://rabbit.example/%2f, MassTransit",
        "rabbitmq, exchange `billing.{{header:tenant}}`, routing key `{{event_type}}` at \
         amqp://rabbit.example, MassTransit",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
}

#[test]
fn values_that_cannot_work_are_reported() {
    check(
        "[[source]]\nname = \"m\"\nkind = \"rabbitmq\"\nurl = \"http://CANARY\"\nqueue = \"\"\n\
         [[destination]]\nname = \"d\"\nkind = \"rabbitmq\"\nurl = \"amqp://h\"\n\
         exchange = \"{{kye}}\"\n",
        &[
            "relais.toml:4:7: source[m].url: must start with amqps:// or amqp://",
            "relais.toml:5:9: source[m].queue: must have 1 to 255 bytes",
            "relais.toml:10:12: destination[d].exchange: `{{kye}}` has an unknown place; use \
             `{{event_type}}`, `{{aggregate_type}}`, `{{aggregate_id}}`, `{{key}}`, \
             `{{destination}}`, `{{header:NAME}}` or `{{payload:/JSON/POINTER}}`",
        ],
    );
}

#[test]
fn keys_that_do_not_fit_together_are_reported() {
    let errors =
        bad("[[source]]\nname = \"m\"\nkind = \"rabbitmq\"\nurl = \"amqp://h\"\nqueue = \"q\"\n\
         message_id = \"position\"\ntls_ca = \"ca.pem\"\ntls_key = \"key.pem\"\n\
         [[destination]]\nname = \"d\"\nkind = \"rabbitmq\"\nurl = \"amqps://h\"\n\
         exchange = \"\"\nenvelope = \"masstransit\"\n");
    for part in [
        "source[m].message_id: RabbitMQ has no positions",
        "source[m].tls_ca: needs a `url` that starts with amqps://",
        "source[m].tls_certificate: is missing beside `tls_key`",
        "destination[d].namespace: is missing",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
