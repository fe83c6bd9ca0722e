//! The lag of a source and its connection state, from the periodic statistics of librdkafka.

use std::collections::HashMap;

use serde::Deserialize;

use super::membership::OwnedPartition;

/// Interval of the statistics, in milliseconds. librdkafka knows the ends of partitions from
/// reading them, so this needs no request to a broker.
pub(super) const STATISTICS_INTERVAL_MS: &str = "5000";

/// The part of librdkafka's statistics that is used here.
#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    topics: HashMap<String, TopicStatistics>,
    #[serde(default)]
    brokers: HashMap<String, BrokerStatistics>,
}

#[derive(Deserialize)]
struct BrokerStatistics {
    state: String,
}

#[derive(Deserialize)]
struct TopicStatistics {
    #[serde(default)]
    partitions: HashMap<String, PartitionStatistics>,
}

/// Offsets are negative while unknown.
#[derive(Deserialize)]
struct PartitionStatistics {
    hi_offset: i64,
    /// The end for a reader of committed records: before open transactions.
    ls_offset: i64,
}

/// The status of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceStatus {
    /// Records of the assigned partitions that are not stored yet; `None` while no end is known.
    pub(super) lag: Option<u64>,
    /// True if a broker is connected.
    pub(super) connected: Option<bool>,
}

pub(super) fn read(statistics: &[u8], owned: &[OwnedPartition]) -> SourceStatus {
    let Ok(Statistics { topics, brokers }) = serde_json::from_slice(statistics) else {
        return SourceStatus::default();
    };
    let end = |owned: &OwnedPartition| {
        let topic = topics.get(&owned.partition.topic)?;
        let PartitionStatistics { hi_offset, ls_offset } =
            topic.partitions.get(&owned.partition.number.to_string())?;
        [*ls_offset, *hi_offset].into_iter().find(|end| *end >= 0)
    };
    let behind = |owned: &OwnedPartition| {
        end(owned).map(|end| u64::try_from(end.saturating_sub(owned.stored)).unwrap_or(0))
    };
    SourceStatus {
        lag: owned.iter().filter_map(behind).reduce(u64::saturating_add),
        connected: Some(brokers.values().any(|broker| broker.state == "UP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_counts_records_of_our_partitions_after_the_stored_offset() {
        let statistics = br#"{"name":"x","brokers":{"b:1/1":{"state":"UP"}},"topics":{"members":{"age":5,"partitions":{
            "0":{"partition":0,"hi_offset":25,"ls_offset":20},
            "1":{"partition":1,"hi_offset":100,"ls_offset":-1001},
            "2":{"partition":2,"hi_offset":7,"ls_offset":7},
            "-1":{"partition":-1,"hi_offset":-1001,"ls_offset":-1001}}}}}"#;
        let of = |statistics, owned: &[OwnedPartition]| read(statistics, owned).lag;
        assert_eq!(of(statistics, &[OwnedPartition::at(0, 5)]), Some(15));
        assert_eq!(
            of(statistics, &[OwnedPartition::at(0, 5), OwnedPartition::at(1, 90)]),
            Some(25)
        );
        assert_eq!(
            of(statistics, &[OwnedPartition::at(0, 30)]),
            Some(0),
            "the known end is older than our position"
        );
        assert_eq!(of(statistics, &[OwnedPartition::at(9, 0)]), None);
        assert_eq!(of(statistics, &[]), None);
        assert_eq!(of(b"no JSON", &[OwnedPartition::at(0, 5)]), None);
    }

    #[test]
    fn one_broker_is_enough_to_be_connected() {
        let status = |brokers: &str| {
            read(format!("{{\"brokers\":{{{brokers}}}}}").as_bytes(), &[]).connected
        };
        assert_eq!(status(r#""a":{"state":"DOWN"},"b":{"state":"UP"}"#), Some(true));
        assert_eq!(status(r#""a":{"state":"TRY_CONNECT"}"#), Some(false));
        assert_eq!(read(b"no JSON", &[]).connected, None);
    }
}
