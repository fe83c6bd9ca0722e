//! The kind `kafka` in whole files, with and without the connector in the build.

use relais_connect::kafka_settings::{KafkaEncoder, KafkaStartOffset};
use relais_core::{decode::Decoder, extract::Pick};

use super::{
    explain::explain,
    tests::{bad, check, good},
    *,
};

const FULL: &str = r#"
[[source]]
name = "members"
kind = "kafka"
brokers = "kafka-1:9092, kafka-2"
group = "members-service"
topics = ["members-created", "members_v2"]
source_system = "ihub"
message_id = "header:message-id"
event_type = "header:type"
aggregate_id = "key"
decoder = "confluent-json"
start = "latest"
[source.options]
"sasl.password" = "${KEY}"
security.protocol = "SASL_SSL"
fetch.max.bytes = 1_000
socket.keepalive.enable = true
[[route]]
on = "MembersCreated"
destination = "orders"
[[destination]]
name = "orders"
kind = "kafka"
brokers = "[::1]:9092"
topic = "orders-v1"
cloudevents = true
options.linger.ms = 5.5
options."client.id" = "CANARY-client"
[destination.limits]
timeout = "5s"
"#;

#[test]
fn every_key_arrives() {
    let (settings, warnings) = good(FULL);
    assert_eq!(warnings, []);
    let SourceSettings { mapping, origin, .. } = &settings.sources[0];
    assert_eq!(mapping.source_system, "ihub");
    assert_eq!(mapping.message_id, Pick::Header("message-id".into()));
    assert_eq!(
        (mapping.decoder, &mapping.aggregate_id),
        (Decoder::ConfluentJson, &Some(Pick::Key))
    );
    let SourceOrigin::Kafka(kafka) = origin else { panic!("{origin:?}") };
    assert_eq!(kafka.brokers, "kafka-1:9092,kafka-2");
    assert_eq!((kafka.group.as_str(), kafka.start), ("members-service", KafkaStartOffset::Latest));
    assert_eq!(kafka.topics, ["members-created", "members_v2"]);
    let names = |options: &[(String, relais::http::SecretString)]| -> Vec<String> {
        let mut names: Vec<_> = options.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(&kafka.options),
        ["fetch.max.bytes", "sasl.password", "security.protocol", "socket.keepalive.enable",]
    );
    let TargetConfig::Kafka(target) = &settings.destinations[0].target else {
        panic!("{settings:?}")
    };
    assert_eq!((target.topic.as_deref(), target.cloudevents), (Some("orders-v1"), true));
    assert_eq!(names(&target.options), ["client.id", "linger.ms"]);
}

#[test]
fn what_is_not_said_has_a_default() {
    let (settings, _) = good(
        "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"a\"]\n\
         [[route]]\non = \"A\"\ndestination = \"orders.v1\"\n\
         [[destination]]\nname = \"orders.v1\"\nkind = \"kafka\"\nbrokers = \"k\"\n",
    );
    let SourceSettings { mapping, origin, .. } = &settings.sources[0];
    assert_eq!((&mapping.source_system[..], &mapping.message_id), ("members", &Pick::Position));
    assert_eq!(mapping.event_type, Some(Pick::Payload("/type".into())));
    assert_eq!((mapping.decoder, &mapping.aggregate_id), (Decoder::Json, &None));
    let SourceOrigin::Kafka(kafka) = origin else { panic!("{origin:?}") };
    assert_eq!((kafka.group.as_str(), kafka.start), ("relais", KafkaStartOffset::Earliest));
    let TargetConfig::Kafka(target) = &settings.destinations[0].target else {
        panic!("{settings:?}")
    };
    assert_eq!((target.topic.as_deref(), target.cloudevents), (Some("orders.v1"), false));
}

#[test]
fn values_of_options_are_never_shown_and_names_are() {
    let (settings, _) = good(FULL);
    let explained = serde_json::to_string(&explain(&settings)).unwrap();
    let shown = format!("{settings:?} {settings:#?} {explained}");
    assert!(!shown.contains("CANARY") && !shown.contains("SASL_SSL"), "{shown}");
    for name in ["sasl.password", "security.protocol", "client.id"] {
        assert!(explained.contains(name), "{explained}");
    }
    let errors =
        bad(&FULL.replace("brokers = \"kafka-1:9092, kafka-2\"", "brokers = \"${KEY}:x\""));
    assert!(errors.contains("`${KEY}:x` is not a list of brokers"), "{errors}");
    assert!(!errors.contains("CANARY"), "{errors}");
}

#[test]
fn what_does_not_fit_is_named_with_its_place() {
    check(
        "[[source]]\nname = \"m\"\nkind = \"kafka\"\nbroker = \"k\"\ntopics = [\"a\", \"^b.*\", \"a\"]\n\
         decoder = \"avro\"\nstart = \"latst\"\nlisten = \"127.0.0.1:1\"\n\
         [source.options]\nsasl.password = [1]\n\"sasl.username\" = \"${NOPE}\"\n\
         client.rack = 1\n\"client.rack\" = 2\n",
        &[
            "relais.toml:1:1: source[m].brokers: is missing; write for example \
             \"kafka-1.example:9092,kafka-2.example:9092\"",
            "relais.toml:4:1: source[m].broker: unknown key; did you mean `brokers`?",
            "relais.toml:5:10: source[m].topics: topic 2 is not the name of a topic; use 1 to 249 \
             letters, digits, `.`, `_` and `-`; topic 3 is there twice",
            "relais.toml:6:11: source[m].decoder: `avro` is not known here; one of `json`, \
             `json-latin1`, `confluent-json`, `confluent-avro`, `text`, `bytes`",
            "relais.toml:7:9: source[m].start: `latst` is not known here; did you mean `latest`?",
            "relais.toml:8:1: source[m].listen: unknown key; it is for kind `http`",
            "relais.toml:10:17: source[m].options.sasl.password: expected a string, a number, true \
             or false",
            "relais.toml:11:19: source[m].options.sasl.username: environment variable `NOPE` is \
             not set; set it, or write `$${` for a plain `${`",
            "relais.toml:12:15: source[m].options.client.rack: is given twice; once quoted, once \
             not",
        ],
    );
    check(
        "[[destination]]\nname = \"a:b\"\nkind = \"kafka\"\nbrokers = \"\"\nurl = \"x\"\n\
         [[destination]]\nname = \"c\"\nkind = \"log\"\ncloudevents = true\ntopic = \"x\"\n",
        &[
            "relais.toml:1:1: destination[a:b].topic: is missing, and the destination's name is \
             not the name of a topic; use 1 to 249 letters, digits, `.`, `_` and `-`",
            "relais.toml:4:11: destination[a:b].brokers: is not a list of brokers; write for \
             example \"kafka-1.example:9092,kafka-2.example:9092\"",
            "relais.toml:5:1: destination[a:b].url: unknown key; it is for kinds `amqp`, `http`, `nats` and `rabbitmq`",
            "relais.toml:9:1: destination[c].cloudevents: unknown key; it is for kinds `http` and \
             `kafka`",
            "relais.toml:10:1: destination[c].topic: unknown key; it is for kinds `kafka` and `servicebus`",
        ],
    );
}

#[test]
fn an_http_source_takes_no_decoder_that_its_content_type_denies() {
    let errors = bad("[[source]]\nname = \"h\"\nkind = \"http\"\ndecoder = \"bytes\"\n");
    assert!(errors.contains("source[h].decoder: `bytes` is not known here"), "{errors}");
}

#[test]
fn two_sources_do_not_share_a_group_and_a_topic() {
    let source = |name: &str, group: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\nkind = \"kafka\"\nbrokers = \"k\"\n\
             topics = [\"t\"]\ngroup = \"{group}\"\n"
        )
    };
    let route = "[[route]]\non = \"A\"\ndestination = \"d\"\n\
                 [[destination]]\nname = \"d\"\nkind = \"log\"\n";
    good(&[&source("a", "g"), &source("b", "h"), route].concat());
    check(
        &[&source("a", "g"), &source("b", "g"), route].concat(),
        &["relais.toml:7:1: source[b].group: source `a` reads the same topic in the same group; \
           give this one another group, or put both into one source"],
    );
}

#[cfg(feature = "kafka")]
#[test]
fn options_that_break_a_promise_or_are_unknown_are_refused_with_their_place() {
    let errors =
        bad("[[source]]\nname = \"m\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"t\"]\n\
         [source.options]\nenable.auto.commit = true\nsasl.pasword = \"CANARY\"\n\
         [[destination]]\nname = \"d\"\nkind = \"kafka\"\nbrokers = \"k\"\n\
         [destination.options]\nacks = 1\n\"linger.ms\" = \"CANARY\"\n");
    let errors: Vec<&str> = errors.lines().collect();
    assert_eq!(errors.len(), 4, "{errors:#?}");
    for (error, place, reason) in [
        (errors[0], "relais.toml:7:22: source[m].options.enable.auto.commit: ", "only after"),
        (errors[1], "relais.toml:8:16: source[m].options.sasl.pasword: ", "librdkafka"),
        (errors[2], "relais.toml:14:8: destination[d].options.acks: ", "in-sync replicas"),
        (errors[3], "relais.toml:15:15: destination[d].options.linger.ms: ", "librdkafka"),
    ] {
        assert!(error.starts_with(place) && error.contains(reason), "{place}{reason}: {error}");
        assert!(!error.contains("CANARY"), "{error}");
    }
}

#[test]
fn keys_of_a_schema_registry_arrive_and_fit_together() {
    let (settings, _) = good(
        "[[source]]\nname = \"m\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"a\"]\n\
         decoder = \"confluent-avro\"\nregistry_url = \"https://r.example\"\n\
         registry_user = \"me\"\nregistry_password = \"${KEY}\"\nunknown_schema_wait = \"2m\"\n\
         [[route]]\non = \"A\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"kafka\"\nbrokers = \"k\"\n\
         encoder = \"confluent-json\"\nregistry_url = \"http://r.example:8081\"\n\
         registry_token = \"${KEY}\"\nsubject = \"{{event_type}}\"\n",
    );
    let SourceOrigin::Kafka(kafka) = &settings.sources[0].origin else { panic!("{settings:?}") };
    assert_eq!(settings.sources[0].mapping.decoder, Decoder::ConfluentAvro);
    assert_eq!(kafka.registry_url.as_deref(), Some("https://r.example"));
    assert_eq!(kafka.unknown_schema_wait.as_secs(), 120);
    let TargetConfig::Kafka(target) = &settings.destinations[0].target else {
        panic!("{settings:?}")
    };
    assert_eq!(target.encoder, KafkaEncoder::ConfluentJson);
    let explained = serde_json::to_string(&explain(&settings)).unwrap();
    assert!(explained.contains("schemas of the registry at https://r.example, as `me`"));
    assert!(!format!("{settings:?} {explained}").contains("CANARY"));
    check(
        "[[source]]\nname = \"m\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"a\"]\n\
         decoder = \"confluent-avro\"\nregistry_password = \"x\"\n\
         [[source]]\nname = \"n\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"b\"]\n\
         registry_url = \"http://r\"\nregistry_tls_ca = \"ca.pem\"\n\
         [[destination]]\nname = \"d\"\nkind = \"kafka\"\nbrokers = \"k\"\n\
         schema_file = \"a.avsc\"\nregistry_url = \"http://me:CANARY@r\"\n",
        &[
            "relais.toml:1:1: source[m].registry_url: is missing; `decoder` needs a schema registry",
            "relais.toml:7:21: source[m].registry_password: needs a `registry_url`",
            "relais.toml:13:16: source[n].registry_url: is not used; set `decoder = \
             \"confluent-avro\"`, or remove it",
            "relais.toml:14:19: source[n].registry_tls_ca: needs a `registry_url` that starts with \
             https://",
            "relais.toml:19:15: destination[d].schema_file: is not used; set `encoder` to \
             `confluent-avro` or `confluent-json`, or remove it",
            "relais.toml:20:16: destination[d].registry_url: has a login in it; use `registry_user` \
             and `registry_password`",
        ],
    );
}
