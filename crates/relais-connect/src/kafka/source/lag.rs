//! How far a source is behind and whether a broker is there, from what librdkafka tells about itself
//! every few seconds.

use std::collections::HashMap;

use serde::Deserialize;

use super::membership::Owned;

/// How often librdkafka tells, in milliseconds. It knows the ends of partitions from reading them:
/// nothing is asked of a broker for this.
pub(super) const TOLD_EVERY: &str = "5000";

/// The part of librdkafka's statistics that matters here.
#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    topics: HashMap<String, Topic>,
    #[serde(default)]
    brokers: HashMap<String, Broker>,
}

#[derive(Deserialize)]
struct Broker {
    state: String,
}

#[derive(Deserialize)]
struct Topic {
    #[serde(default)]
    partitions: HashMap<String, End>,
}

/// Negative where it is not known yet.
#[derive(Deserialize)]
struct End {
    hi_offset: i64,
    /// The end for a reader of committed records: before those of open transactions.
    ls_offset: i64,
}

/// What there is to know of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Records of our partitions that are not stored yet; nothing as long as no end is known.
    pub(super) lag: Option<u64>,
    /// Whether there is a connection to any broker.
    pub(super) connected: Option<bool>,
}

pub(super) fn read(statistics: &[u8], owned: &[Owned]) -> Told {
    let Ok(Statistics { topics, brokers }) = serde_json::from_slice(statistics) else {
        return Told::default();
    };
    let end = |owned: &Owned| {
        let topic = topics.get(&owned.partition.topic)?;
        let End { hi_offset, ls_offset } =
            topic.partitions.get(&owned.partition.number.to_string())?;
        [*ls_offset, *hi_offset].into_iter().find(|end| *end >= 0)
    };
    let behind = |owned: &Owned| {
        end(owned).map(|end| u64::try_from(end.saturating_sub(owned.stored)).unwrap_or(0))
    };
    Told {
        lag: owned.iter().filter_map(behind).reduce(u64::saturating_add),
        connected: Some(brokers.values().any(|broker| broker.state == "UP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_our_partitions_hold_beyond_what_is_stored() {
        let statistics = br#"{"name":"x","brokers":{"b:1/1":{"state":"UP"}},"topics":{"members":{"age":5,"partitions":{
            "0":{"partition":0,"hi_offset":25,"ls_offset":20},
            "1":{"partition":1,"hi_offset":100,"ls_offset":-1001},
            "2":{"partition":2,"hi_offset":7,"ls_offset":7},
            "-1":{"partition":-1,"hi_offset":-1001,"ls_offset":-1001}}}}}"#;
        let of = |statistics, owned: &[Owned]| read(statistics, owned).lag;
        assert_eq!(of(statistics, &[Owned::at(0, 5)]), Some(15));
        assert_eq!(of(statistics, &[Owned::at(0, 5), Owned::at(1, 90)]), Some(25));
        assert_eq!(
            of(statistics, &[Owned::at(0, 30)]),
            Some(0),
            "the end we know is older than our place"
        );
        assert_eq!(of(statistics, &[Owned::at(9, 0)]), None);
        assert_eq!(of(statistics, &[]), None);
        assert_eq!(of(b"no JSON", &[Owned::at(0, 5)]), None);
    }

    #[test]
    fn one_broker_is_enough_to_be_connected() {
        let told = |brokers: &str| {
            read(format!("{{\"brokers\":{{{brokers}}}}}").as_bytes(), &[]).connected
        };
        assert_eq!(told(r#""a":{"state":"DOWN"},"b":{"state":"UP"}"#), Some(true));
        assert_eq!(told(r#""a":{"state":"TRY_CONNECT"}"#), Some(false));
        assert_eq!(read(b"no JSON", &[]).connected, None);
    }
}
