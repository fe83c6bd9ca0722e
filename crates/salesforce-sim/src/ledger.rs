//! The effect ledger: counts how often each record was written.
//!
//! Only committed writes are counted, and each of them fires the org's triggers once. So the counts
//! prove whether each effect happened exactly once. The key is the external id if there is one: two
//! records with one external id are two creations of one record.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::id::Id;

/// The number of recent writes that are kept for the page.
const RECENT_MAX: usize = 200;
/// A record with more versions counts the rest under [`MORE`].
const VERSIONS_MAX: usize = 1_000;
const MORE: &str = "more";

/// A committed write.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteEffect {
    pub object: String,
    pub id: Id,
    pub external_id: Option<String>,
    /// The value of the object's version field after the write.
    pub version: Option<String>,
    pub kind: EffectKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectKind {
    Created,
    Updated,
    /// An update that changed nothing.
    Unchanged,
    Deleted,
}

/// All effects of one record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    pub object: String,
    /// Empty if the object has no external id.
    pub external_id: String,
    /// The record that was written last under this key.
    pub id: Id,
    /// All writes: the sum of the next four.
    pub writes: u64,
    pub created: u64,
    pub updated: u64,
    pub unchanged: u64,
    pub deleted: u64,
    /// Writes by the value of the version field; deletions are not counted.
    pub versions: BTreeMap<String, u64>,
}

impl LedgerEntry {
    /// Returns whether an effect was repeated: one version twice, or a write without a change.
    pub fn is_repeated(&self) -> bool {
        self.unchanged > 0 || self.created > 1 || self.versions.values().any(|writes| *writes > 1)
    }
}

/// All writes since the start or the last reset.
#[derive(Clone, Debug, Default)]
pub struct EffectLedger {
    entries: BTreeMap<(String, String), LedgerEntry>,
    recent: VecDeque<WriteEffect>,
    writes: u64,
}

impl EffectLedger {
    /// Returns the entries by object and key.
    pub fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.values()
    }

    pub fn entry(&self, object: &str, external_id: &str) -> Option<&LedgerEntry> {
        self.entries.get(&(object.to_owned(), external_id.to_owned()))
    }

    /// Returns the number of records that were written.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of committed writes.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the number of records with a repeated effect: 0 proves that each effect happened
    /// once.
    pub fn repeated(&self) -> usize {
        self.entries().filter(|entry| entry.is_repeated()).count()
    }

    /// Returns the recent writes, newest first.
    pub fn recent(&self) -> impl Iterator<Item = &WriteEffect> {
        self.recent.iter().rev()
    }

    pub(crate) fn record(&mut self, effect: WriteEffect) {
        let known_by = effect.external_id.clone().unwrap_or_else(|| effect.id.to_string());
        let key = (effect.object.clone(), known_by);
        let entry = self.entries.entry(key).or_insert_with(|| LedgerEntry {
            object: effect.object.clone(),
            external_id: effect.external_id.clone().unwrap_or_default(),
            id: effect.id,
            writes: 0,
            created: 0,
            updated: 0,
            unchanged: 0,
            deleted: 0,
            versions: BTreeMap::new(),
        });
        entry.id = effect.id;
        entry.writes += 1;
        match effect.kind {
            EffectKind::Created => entry.created += 1,
            EffectKind::Updated => entry.updated += 1,
            EffectKind::Unchanged => entry.unchanged += 1,
            EffectKind::Deleted => entry.deleted += 1,
        }
        if let (Some(version), false) = (&effect.version, effect.kind == EffectKind::Deleted) {
            let is_full = entry.versions.len() >= VERSIONS_MAX;
            let known = entry.versions.contains_key(version);
            let version = if is_full && !known { MORE } else { version };
            *entry.versions.entry(version.to_owned()).or_default() += 1;
        }
        self.writes += 1;
        self.recent.push_back(effect);
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(key: &str, version: Option<&str>, kind: EffectKind) -> WriteEffect {
        WriteEffect {
            object: "Contact".to_owned(),
            id: Id::new("003", 1),
            external_id: Some(key.to_owned()),
            version: version.map(str::to_owned),
            kind,
        }
    }

    #[test]
    fn a_version_written_twice_is_detected() {
        let mut ledger = EffectLedger::default();
        ledger.record(effect("m1", Some("1"), EffectKind::Created));
        ledger.record(effect("m1", Some("2"), EffectKind::Updated));
        assert_eq!((ledger.repeated(), ledger.writes(), ledger.len()), (0, 2, 1));
        ledger.record(effect("m1", Some("2"), EffectKind::Updated));
        assert_eq!(ledger.repeated(), 1);
        let entry = ledger.entry("Contact", "m1").unwrap();
        assert_eq!(entry.versions, BTreeMap::from([("1".to_owned(), 1), ("2".to_owned(), 2)]));
    }

    #[test]
    fn a_write_without_a_change_is_detected_without_versions() {
        let mut ledger = EffectLedger::default();
        ledger.record(effect("m1", None, EffectKind::Created));
        assert_eq!(ledger.repeated(), 0);
        ledger.record(effect("m1", None, EffectKind::Unchanged));
        assert_eq!(ledger.repeated(), 1);
    }
}
