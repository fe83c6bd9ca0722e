//! The checker: compares what was written with what arrived, and what is left in the tables.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::{
    base::Base,
    history::{Closed, Flow, Name},
    writers::Keys,
};

/// Most examples in a finding.
const EXAMPLES_MAX: usize = 5;

/// What is wrong, by its name; empty if all is well.
#[derive(Debug, Default)]
pub(crate) struct Findings(BTreeMap<&'static str, Vec<String>>);

impl Findings {
    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, Vec::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, name: &'static str, examples: impl IntoIterator<Item = String>) {
        let examples: Vec<_> = examples.into_iter().collect();
        if !examples.is_empty() {
            self.0.entry(name).or_default().extend(examples);
        }
    }
}

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, examples) in &self.0 {
            let shown = examples.iter().take(EXAMPLES_MAX).cloned().collect::<Vec<_>>().join(", ");
            writeln!(f, "{name}: {} ({shown} …)", examples.len())?;
        }
        Ok(())
    }
}

/// Rows that should have come to their end, by table.
const OPEN: &str = "\
    SELECT 'outbox ' || CAST(id AS TEXT) || ' ' || status FROM relais_outbox WHERE status <> 'DISPATCHED' \
    UNION ALL SELECT 'inbox ' || CAST(id AS TEXT) || ' ' || status FROM relais_inbox WHERE status <> 'PROCESSED' \
    UNION ALL SELECT 'parked key ' || msg_key FROM relais_parked_key \
    UNION ALL SELECT 'dead letter ' || message_id FROM relais_dead_letter";

/// Lanes that are still owned although everybody has left.
const OWNED: &str =
    "SELECT scope || ' ' || CAST(lane AS TEXT) FROM relais_lane WHERE owner IS NOT NULL";

/// How many rows are not at their end yet.
pub(crate) async fn open_rows(base: &Base) -> Result<u64> {
    base.connect().await?.number(&format!("SELECT CAST(count(*) AS TEXT) FROM ({OPEN}) AS o")).await
}

/// Everything that can be checked when all has come to rest and every process has ended.
pub(crate) async fn check(base: &Base, posted: &[Keys], closed: &Closed) -> Result<Findings> {
    let mut client = base.connect().await?;
    let mut findings = Findings::default();
    let mut written: BTreeSet<Name> = posted.iter().flat_map(names).collect();
    let orders = client.texts("SELECT name FROM shop_order").await?;
    written.extend(orders.iter().filter_map(|name| Name::parse(name)));

    let arrived: BTreeSet<Name> = closed.arrived.keys().copied().collect();
    findings.add("lost", written.difference(&arrived).map(Name::to_string));
    findings.add("phantom", arrived.difference(&written).map(Name::to_string));
    findings.add("phantom", closed.unknown.iter().cloned());
    findings.add("reordered", closed.reordered.iter().map(Name::to_string));
    findings.add("double effect", closed.renamed.iter().map(Name::to_string));
    findings.add("rewritten", client.texts("SELECT what FROM rewritten").await?);
    findings.add("stranded", client.texts(OPEN).await?);
    findings.add("left locked", client.texts(OWNED).await?);
    Ok(findings)
}

/// The last number of a key that was answered: everything up to it must arrive.
fn names(keys: &Keys) -> impl Iterator<Item = Name> {
    debug_assert_eq!(keys.flow, Flow::Heard);
    let keyed = keys.numbers.iter().zip(keys.first..);
    let flow = keys.flow;
    keyed.flat_map(move |(last, key)| (1..=*last).map(move |number| Name { flow, key, number }))
}
