//! What else of the product is under torture, beside the plain way from outbox and source to a target.
//!
//! - `salesforce`: bulk jobs that fail half-way, in a simulated org
//! - `kafka`: from topic to topic, with a broker that is killed
//! - `ledger`, `orders`: a service of a user, with a handler that keeps a ledger and with processes, whose
//!   commands go to `services`
//! - `trouble`: a target with outages, slow answers and poison keys
//!
//! Each flow starts what it needs, adds its settings, writes with faults, calms down, drains, is checked
//! and gives its figures.

pub(crate) mod kafka;
mod ledger;
mod orders;
mod salesforce;
mod services;
mod trouble;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use tokio::task::JoinHandle;

use crate::{
    arena::Plan,
    base::Base,
    check::Findings,
    diary::Diary,
    faults::Toll,
    node::{Node, Program},
    writers::Desk,
};
use kafka::Kafka;
use ledger::Ledger;
use salesforce::Salesforce;
use trouble::Trouble;

/// What all flows of an arena share.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) base: Base,
    /// The proxy before the database, if it is a server.
    pub(crate) through: Option<SocketAddr>,
    pub(crate) program: Program,
    pub(crate) plan: Plan,
    pub(crate) desk: Arc<Desk>,
    pub(crate) toll: Arc<Toll>,
    pub(crate) diary: Diary,
    pub(crate) http: reqwest::Client,
}

/// The flows of an arena.
pub(crate) struct Flows {
    salesforce: Salesforce,
    ledger: Ledger,
    trouble: Trouble,
    kafka: Option<Kafka>,
}

impl Flows {
    /// Starts what they need beside the database.
    pub(crate) async fn start(stage: &Stage) -> Result<Self> {
        let kafka = match stage.plan.means.kafka.clone() {
            Some(broker) => Some(Kafka::start(broker).await?),
            None => None,
        };
        let ledger = Ledger::start(stage).await?;
        let (salesforce, trouble) = (Salesforce::start().await?, Trouble::start(stage).await?);
        Ok(Self { salesforce, ledger, trouble, kafka })
    }

    /// Writes the settings of every process of the arena, of which these are a part.
    pub(crate) fn write_settings(&self, stage: &Stage, own: &str) -> Result<()> {
        let mut text = own.to_owned() + &self.salesforce.settings(&stage.base);
        if let Some(kafka) = &self.kafka {
            text += &kafka.settings();
            kafka.write_settings(stage, &text)?;
        }
        self.trouble.write_settings(stage)?;
        Ok(std::fs::write(stage.program.folder.join("relais.toml"), text)?)
    }

    /// Begins to write, with faults; gives processes that serve the arena as its own do.
    pub(crate) fn go(&mut self, stage: &Stage) -> Vec<JoinHandle<Result<Node>>> {
        self.salesforce.go(stage);
        self.ledger.go(stage);
        let mut nodes = self.trouble.go(stage);
        nodes.extend(self.kafka.iter_mut().flat_map(|kafka| kafka.go(stage)));
        nodes
    }

    /// Ends the faults.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        self.salesforce.calm().await?;
        self.ledger.calm().await?;
        self.trouble.calm().await?;
        match &mut self.kafka {
            Some(kafka) => kafka.calm().await,
            None => Ok(()),
        }
    }

    /// Ends the writing, once the arena's desk is closed.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.salesforce.finish().await?;
        self.ledger.finish().await?;
        self.trouble.finish().await?;
        match &mut self.kafka {
            Some(kafka) => kafka.finish().await,
            None => Ok(()),
        }
    }

    /// What is still on its way. Ask this before the rows of the arena: what is read here is there then.
    pub(crate) async fn open(&self, base: &Base) -> Result<Vec<String>> {
        let mut open = match &self.kafka {
            Some(kafka) => kafka.open().await?,
            None => Vec::new(),
        };
        open.extend(self.salesforce.open(&mut base.connect().await?).await?);
        open.extend(self.ledger.open().await?);
        Ok(open)
    }

    /// Ends the processes that are the flows' own.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.ledger.stop().await
    }

    pub(crate) async fn check(&mut self, base: &Base, findings: &mut Findings) -> Result<()> {
        let mut client = base.connect().await?;
        self.salesforce.check(&mut client, findings).await?;
        self.ledger.check(findings).await?;
        self.trouble.check(&mut client, findings).await?;
        match &self.kafka {
            Some(kafka) => kafka.check(&mut client, findings).await,
            None => Ok(()),
        }
    }

    /// What there was of each.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.salesforce.counts().to_vec();
        counts.extend(self.ledger.counts());
        counts.extend(self.trouble.counts());
        counts.extend(self.kafka.iter().flat_map(Kafka::counts));
        counts
    }

    /// Removes what they made in the database server.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.ledger.remove().await
    }
}

/// How many there are in all and in a second, for a wanted number in a second; the writers are twice as
/// fast, because they stand still at times.
fn rate(plan: &Plan, a_second: u64) -> (u64, u64) {
    (a_second * plan.time.as_secs().max(1), a_second * 2)
}
