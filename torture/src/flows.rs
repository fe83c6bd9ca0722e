//! The flows under torture beside the plain one from outbox and source to a target.
//!
//! - `salesforce`: bulk jobs that fail half-way, in a simulated org
//! - `brokers`: Kafka, RabbitMQ and NATS, from topic to topic, with brokers that are killed
//! - `ledger`, `orders`: a service of a user, with a handler that keeps a ledger and with processes, whose
//!   commands go to `services`
//! - `trouble`: a target with outages, slow answers and poison keys
//!
//! Each flow starts what it needs, adds its settings, writes with faults, calms down, drains, is checked
//! and gives its figures.

pub(crate) mod brokers;
mod ledger;
mod orders;
mod salesforce;
mod services;
mod trouble;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use tokio::task::JoinHandle;

use crate::{
    base::Base,
    check::Findings,
    event_log::EventLog,
    faults::FaultControl,
    node::{NodeProcess, NodeProgram},
    store_run::RunPlan,
    writers::SharedState,
};
use brokers::Brokers;
use ledger::LedgerFlow;
use salesforce::Salesforce;
use trouble::TroubleFlow;

/// Shared by all flows of a run.
#[derive(Clone)]
pub(crate) struct FlowContext {
    pub(crate) base: Base,
    /// The proxy before the database, if it is a server.
    pub(crate) through: Option<SocketAddr>,
    pub(crate) program: NodeProgram,
    pub(crate) plan: RunPlan,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) control: Arc<FaultControl>,
    pub(crate) event_log: EventLog,
    pub(crate) http: reqwest::Client,
}

/// The flows of a run.
pub(crate) struct Flows {
    salesforce: Salesforce,
    ledger: LedgerFlow,
    trouble: TroubleFlow,
    brokers: Brokers,
}

impl Flows {
    /// Starts what they need beside the database.
    pub(crate) async fn start(context: &FlowContext) -> Result<Self> {
        let brokers = Brokers::start(&context.plan.tools.brokers).await?;
        let ledger = LedgerFlow::start(context).await?;
        let (salesforce, trouble) =
            (Salesforce::start().await?, TroubleFlow::start(context).await?);
        Ok(Self { salesforce, ledger, trouble, brokers })
    }

    /// Writes the settings of every process of the run, including those of the flows.
    pub(crate) fn write_settings(&self, context: &FlowContext, own: &str) -> Result<()> {
        let mut text = own.to_owned() + &self.salesforce.settings(&context.base);
        text += &self.brokers.settings();
        self.brokers.write_settings(context, &text)?;
        self.trouble.write_settings(context)?;
        Ok(std::fs::write(context.program.folder.join("relais.toml"), text)?)
    }

    /// Begins to write, with faults; returns processes that serve the run as its own do.
    pub(crate) fn go(&mut self, context: &FlowContext) -> Vec<JoinHandle<Result<NodeProcess>>> {
        self.salesforce.go(context);
        self.ledger.go(context);
        let mut nodes = self.trouble.go(context);
        nodes.extend(self.brokers.go(context));
        nodes
    }

    /// Ends the faults.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        self.salesforce.calm().await?;
        self.ledger.calm().await?;
        self.trouble.calm().await?;
        self.brokers.calm().await
    }

    /// Ends the writing, once the shared state is closed.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.salesforce.finish().await?;
        self.ledger.finish().await?;
        self.trouble.finish().await?;
        self.brokers.finish().await
    }

    /// Returns open work. Call it before reading the rows of the run: a record read here is a row then.
    pub(crate) async fn open(&self, base: &Base) -> Result<Vec<String>> {
        let mut client = base.connect().await?;
        let mut open = self.brokers.open(&mut client).await?;
        open.extend(self.salesforce.open(&mut client).await?);
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
        self.brokers.check(&mut client, findings).await
    }

    /// Returns the counts of each flow.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.salesforce.counts().to_vec();
        counts.extend(self.ledger.counts());
        counts.extend(self.trouble.counts());
        counts.extend(self.brokers.counts());
        counts
    }

    /// Removes what they made in the database server.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.ledger.remove().await
    }
}

/// Returns the total and the pace per second for a wanted number per second. Writers are twice as fast,
/// because they pause at times.
fn rate(plan: &RunPlan, a_second: u64) -> (u64, u64) {
    (a_second * plan.time.as_secs().max(1), a_second * 2)
}
