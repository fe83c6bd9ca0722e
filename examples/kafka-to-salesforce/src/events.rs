//! The events of the specification: ids and a version, nothing else. Each is sent twice.

use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::json;

use crate::{BLOCKS_OF_A_FAMILY, FAMILIES, MEMBERS_OF_A_FAMILY, kafka::Topic};

/// The way of events to the program.
pub(crate) enum Feed {
    Kafka(Topic),
    Http,
}

impl Feed {
    pub(crate) async fn open() -> anyhow::Result<Self> {
        let brokers = ["KAFKA_BROKERS", "RELAIS_TEST_KAFKA"];
        let brokers = brokers.iter().find_map(|name| std::env::var(name).ok());
        Ok(match brokers {
            Some(brokers) => Topic::create(&brokers).await?.map_or(Self::Http, Self::Kafka),
            None => Self::Http,
        })
    }

    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Kafka(_) => "through Kafka",
            Self::Http => {
                "over HTTP (through Kafka with the feature `kafka` and KAFKA_BROKERS set)"
            }
        }
    }

    /// Sends every event twice, and one that cannot be decoded.
    pub(crate) async fn send_all(&self, hook: Option<SocketAddr>) -> anyhow::Result<()> {
        for family in 1..=FAMILIES {
            for (id, body) in [members_created(family), blocks_to_create(family)] {
                self.send(hook, &id, &body).await?;
                self.send(hook, &id, &body).await?;
            }
        }
        self.send(hook, "garbage", "{\"type\": \"MembersCreated\", \"memberIds\": [").await
    }

    async fn send(&self, hook: Option<SocketAddr>, id: &str, body: &str) -> anyhow::Result<()> {
        match (self, hook) {
            (Self::Kafka(topic), _) => topic.send(id, body).await,
            (Self::Http, Some(hook)) => post(hook, id, body).await,
            (Self::Http, None) => anyhow::bail!("the program does not say where it listens"),
        }
    }

    pub(crate) async fn close(self) {
        if let Self::Kafka(topic) = self {
            topic.delete().await;
        }
    }
}

fn members_created(family: usize) -> (String, String) {
    let ids: Vec<String> = (1..=MEMBERS_OF_A_FAMILY).map(|n| format!("M-{family}-{n}")).collect();
    let body = json!({
        "type": "MembersCreated",
        "familyId": format!("F-{family}"),
        "memberIds": ids,
        "asOfVersion": 7,
        "eventVersion": 2,
    });
    (format!("members-{family}"), body.to_string())
}

fn blocks_to_create(family: usize) -> (String, String) {
    let ids: Vec<String> = (1..=BLOCKS_OF_A_FAMILY).map(|n| format!("B-{family}-{n}")).collect();
    let body = json!({
        "type": "BlocksToCreate",
        "familyId": format!("F-{family}"),
        "blockType": "RISK",
        "blockIds": ids,
        "eventVersion": 1,
    });
    (format!("blocks-{family}"), body.to_string())
}

async fn post(hook: SocketAddr, id: &str, body: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let request = client
        .post(format!("http://{hook}/families"))
        .header("content-type", "application/json")
        .header("message-id", id)
        .body(body.to_owned());
    let status = request.send().await?.status();
    ensure!(status == 202, "the event {id} was answered with {status}");
    Ok(())
}
