//! The checker: compares what was written with what arrived, and what is left in the tables.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    base::{Base, DatabaseClient},
    history::{ArrivalTable, Flow, MessageName, RepeatedMessage, WrittenKeys, hash},
    writers::WriterKeys,
};

/// Most examples in a finding.
const EXAMPLES_MAX: usize = 5;

/// Violations by their name; empty if there are none.
#[derive(Debug, Default)]
pub(crate) struct Findings(BTreeMap<&'static str, Vec<String>>);

impl Findings {
    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, Vec::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    pub(crate) fn add(&mut self, name: &'static str, examples: impl IntoIterator<Item = String>) {
        let examples: Vec<_> = examples.into_iter().collect();
        if !examples.is_empty() {
            self.0.entry(name).or_default().extend(examples);
        }
    }

    /// Compares written messages with arrived ones.
    pub(crate) fn compare(&mut self, written: &WrittenKeys, closed: &ArrivalTable) {
        let missing = |name: &MessageName| !closed.has(*name) && !written.waiting.contains(name);
        self.add("lost", written.names().filter(missing).map(|name| name.to_string()));
        let unwritten = closed.names().filter(|name| !written.has(*name));
        self.add("phantom", unwritten.map(|name| name.to_string()));
        self.add("phantom", closed.unknown.iter().cloned());
        self.add("reordered", closed.reordered.iter().map(MessageName::to_string));
        self.add("double effect", closed.renamed.iter().map(MessageName::to_string));
    }

    /// Checks what is left in the tables. No process may have a session by now, the caller included.
    pub(crate) async fn tables(&mut self, base: &Base) -> Result<()> {
        let mut client = base.connect().await?;
        self.add("rewritten", client.texts("SELECT what FROM rewritten").await?);
        self.add("stranded", open(&mut client).await?);
        self.add("undeserved dead letter", undeserved_dead_letters(&mut client).await?);
        self.add("left locked", base.leased(&mut client).await?);
        drop(client);
        self.add("left locked", base.left_locked().await?);
        self.add("corrupt", base.damage().await?);
        Ok(())
    }

    /// Copies of a message against the claims of its row (see [`claims`]): each call that failed
    /// and each owner its lane had meanwhile may have sent one. What is not in the tables: a failed call
    /// whose settlement was lost too; one for each disturbance of the target's network between the first
    /// copy and the last is allowed. The claims of a row are noted when it ends: one that still waits is
    /// left out.
    pub(crate) fn compare_copies(
        &mut self,
        written: &WrittenKeys,
        closed: &ArrivalTable,
        claims: &HashMap<u64, u32>,
        unwell: &[(Instant, Instant)],
    ) {
        let allowed = |of: &RepeatedMessage| {
            let during = unwell.iter().filter(|(from, to)| *from <= of.last && *to >= of.first);
            claims.get(&of.hash).copied().unwrap_or(1) as usize + during.count()
        };
        let ended = closed.repeated.values().filter(|of| !written.waiting.contains(&of.name));
        let beyond = ended.filter(|of| of.copies as usize > allowed(of));
        let texts =
            beyond.map(|of| format!("{} came {} times of {}", of.name, of.copies, allowed(of)));
        self.add("too many copies", texts);
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

/// Rows that should have come to their end, by table. Poison keys never do.
const OPEN: &str = "\
    SELECT 'outbox ' || CAST(id AS TEXT) || ' ' || status || ' ' || coalesce(msg_key, aggregate_id) || ' ' \
    || CAST(attempts AS TEXT) || ' attempts ' || coalesce(error_code, '') FROM relais_outbox \
    WHERE status <> 'DISPATCHED' AND coalesce(msg_key, aggregate_id) NOT IN (POISON_KEYS) \
    UNION ALL SELECT 'inbox ' || CAST(id AS TEXT) || ' ' || status FROM relais_inbox WHERE status NOT IN ('PROCESSED', 'SERDE_ERROR') \
    UNION ALL SELECT 'parked key ' || msg_key FROM relais_parked_key WHERE msg_key NOT IN (POISON_KEYS)";

/// Dead letters of messages; what a process leaves to an operator is not among them.
const DEAD_LETTERS: &str = "FROM relais_dead_letter WHERE origin <> 'process' AND msg_key";

/// Payloads of open rows.
const WAITING: &str = "\
    SELECT payload FROM relais_outbox WHERE status <> 'DISPATCHED' \
    UNION ALL SELECT payload FROM relais_inbox WHERE status <> 'PROCESSED' AND payload IS NOT NULL";

/// Returns open rows. Processes that wait for an operator are not among them.
pub(crate) async fn open(client: &mut DatabaseClient) -> Result<Vec<String>> {
    client.texts(&open_sql()).await
}

/// Returns how many rows are not at their end yet, and one of them.
pub(crate) async fn open_rows(base: &Base) -> Result<(u64, String)> {
    let (mut client, sql) = (base.connect().await?, open_sql());
    let rows = client.number(&format!("SELECT CAST(count(*) AS TEXT) FROM ({sql}) AS o")).await?;
    let first = client.texts(&format!("{sql} LIMIT 1")).await?;
    Ok((rows, first.into_iter().next().unwrap_or_default()))
}

fn open_sql() -> String {
    let poison = [Flow::Patient, Flow::Strict].map(poison_keys).join(", ");
    OPEN.replace("POISON_KEYS", &poison)
}

/// Returns the poison keys of a flow as a list in SQL.
fn poison_keys(flow: Flow) -> String {
    flow.poison_keys().iter().map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ")
}

/// Returns dead letters that no poison key explains. In [`Flow::Patient`] not even a poison key becomes one:
/// its attempts take longer than a run.
async fn undeserved_dead_letters(client: &mut DatabaseClient) -> Result<Vec<String>> {
    let poison = poison_keys(Flow::Strict);
    let sql = format!(
        "SELECT origin || ' ' || msg_key || ' after ' || CAST(attempts AS TEXT) || ' attempts: ' \
         || coalesce(error_class, '') || ' ' || coalesce(error_message, '') \
         {DEAD_LETTERS} NOT IN ({poison})"
    );
    client.texts(&sql).await
}

/// Returns how many dead letters there are of poison keys that use up their attempts.
pub(crate) async fn deserved_dead_letters(client: &mut DatabaseClient) -> Result<u64> {
    let poison = poison_keys(Flow::Strict);
    client.number(&format!("SELECT CAST(count(*) AS TEXT) {DEAD_LETTERS} IN ({poison})")).await
}

/// Input of the checker, after every process has ended.
#[derive(Debug)]
pub(crate) struct CheckInput<'a> {
    pub(crate) base: &'a Base,
    /// The keys of those who posted: everything up to the last number was promised.
    pub(crate) posted: &'a [WriterKeys],
    pub(crate) closed: &'a ArrivalTable,
    /// When the network of the target was not well.
    pub(crate) unwell: &'a [(Instant, Instant)],
}

/// Runs every check. Finished rows may be deleted: the business rows and the notes of our own triggers
/// show what was written.
pub(crate) async fn check(known: CheckInput<'_>) -> Result<Findings> {
    let CheckInput { base, posted, closed, unwell } = known;
    let mut client = base.connect().await?;
    let mut findings = Findings::default();
    let mut written = orders(&mut client, Flow::Sent).await?;
    for keys in posted {
        written.extend(keys.written());
    }
    written.waiting = waiting(&mut client).await?;

    findings.compare(&written, closed);
    findings.compare_copies(&written, closed, &claims(&mut client).await?, unwell);
    drop(client);
    findings.tables(base).await?;
    Ok(findings)
}

/// The business rows of a flow: for each of them there must be a message.
pub(crate) async fn orders(client: &mut DatabaseClient, flow: Flow) -> Result<WrittenKeys> {
    let letter = flow.letter();
    let sql = format!(
        "SELECT msg_key || '-' || CAST(max(number) AS TEXT) || ' ' || CAST(count(*) AS TEXT) \
         FROM shop_order WHERE msg_key LIKE '{letter}%' GROUP BY msg_key"
    );
    let mut written = WrittenKeys::default();
    for text in client.texts(&sql).await? {
        let (last, count) = text.split_once(' ').context("two words")?;
        let last = MessageName::parse(last).with_context(|| format!("no name: {last}"))?;
        ensure!(count.parse() == Ok(last.number), "the database has lost orders before {last}");
        written.add(flow, last.key, last.number);
    }
    Ok(written)
}

/// Messages in rows that have not come to their end.
pub(crate) async fn waiting(client: &mut DatabaseClient) -> Result<HashSet<MessageName>> {
    let name = |payload: &String| {
        let payload: serde_json::Value = serde_json::from_str(payload).ok()?;
        MessageName::parse(payload["name"].as_str()?)
    };
    Ok(client.texts(WAITING).await?.iter().filter_map(name).collect())
}

/// Returns the claims of each row with more than one, by the hash of its message id: calls that failed, the one
/// that succeeded, and the take-overs of its lane from when it was written to when it was settled, as
/// triggers counted them.
async fn claims(client: &mut DatabaseClient) -> Result<HashMap<u64, u32>> {
    let rows = client.texts("SELECT message_id || ' ' || CAST(claims AS TEXT) FROM claim").await?;
    let read = |row: &String| {
        let (message_id, claims) = row.split_once(' ')?;
        Some((hash(message_id), claims.parse().ok()?))
    };
    Ok(rows.iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::Arrivals;

    /// Returns the findings if the first messages of the key `s7` were written and these arrived.
    fn found(written: u32, arrived: &[(&str, &str)]) -> Findings {
        let mut findings = Findings::default();
        findings.compare(&up_to(written), &close(arrived));
        findings
    }

    fn up_to(last: u32) -> WrittenKeys {
        let mut written = WrittenKeys::default();
        written.add(Flow::Sent, 7, last);
        written
    }

    fn close(arrived: &[(&str, &str)]) -> ArrivalTable {
        let arrivals = Arrivals::default();
        for (name, id) in arrived {
            arrivals.note(name, id);
        }
        arrivals.close()
    }

    #[test]
    fn a_good_history_has_no_findings() {
        let findings = found(2, &[("s7-1", "a"), ("s7-2", "b"), ("s7-1", "a")]);
        assert!(findings.is_empty(), "{findings}");
    }

    #[test]
    fn what_was_written_and_never_came_is_lost_unless_it_waits() {
        assert_eq!(found(2, &[("s7-1", "a")]).count("lost"), 1);
        let mut written = up_to(2);
        written.waiting.extend(MessageName::parse("s7-2"));
        let mut findings = Findings::default();
        findings.compare(&written, &close(&[("s7-1", "a")]));
        assert!(findings.is_empty(), "{findings}");
    }

    #[test]
    fn what_came_and_was_never_written_is_a_phantom() {
        assert_eq!(found(1, &[("s7-1", "a"), ("s7-2", "b")]).count("phantom"), 1);
        assert_eq!(found(1, &[("s7-1", "a"), ("rolled back", "b")]).count("phantom"), 1);
    }

    #[test]
    fn a_first_copy_after_a_later_message_is_reordered() {
        let findings = found(2, &[("s7-2", "b"), ("s7-1", "a")]);
        assert_eq!((findings.count("reordered"), findings.count("lost")), (1, 0));
    }

    #[test]
    fn a_copy_under_another_id_is_a_double_effect() {
        assert_eq!(found(1, &[("s7-1", "a"), ("s7-1", "b")]).count("double effect"), 1);
    }

    #[test]
    fn more_copies_than_claims_are_too_many() {
        let closed = close(&[("s7-1", "a"), ("s7-1", "a"), ("s7-1", "a")]);
        let count = |claims: Option<u32>, unwell: &[(Instant, Instant)]| {
            let claims = claims.map(|claims| (hash("a"), claims)).into_iter().collect();
            let mut findings = Findings::default();
            findings.compare_copies(&up_to(1), &closed, &claims, unwell);
            findings.count("too many copies")
        };
        assert_eq!(count(None, &[]), 1, "a row without a note was claimed once");
        assert_eq!(count(Some(2), &[]), 1);
        assert_eq!(count(Some(3), &[]), 0);
        let now = Instant::now();
        let before = now - Duration::from_secs(9);
        assert_eq!(count(Some(2), &[(before, now)]), 0, "the network was unwell meanwhile");
        assert_eq!(count(Some(2), &[(before, before)]), 1, "it was well again");
        let mut written = up_to(1);
        written.waiting.extend(MessageName::parse("s7-1"));
        let mut findings = Findings::default();
        findings.compare_copies(&written, &closed, &HashMap::new(), &[]);
        assert!(findings.is_empty(), "its claims are not noted yet");
    }

    /// A database of the tables the checker reads.
    async fn tables(rows: &str) -> (tempfile::TempDir, Base) {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::sqlite(folder.path());
        let mut client = base.connect().await.unwrap();
        client.run(include_str!("sql/checked_tables.sql")).await.unwrap();
        client.run(rows).await.unwrap();
        (folder, base)
    }

    async fn found_in(rows: &str) -> Findings {
        let (_folder, base) = tables(rows).await;
        let closed = close(&[]);
        check(CheckInput { base: &base, posted: &[], closed: &closed, unwell: &[] }).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_left_in_the_tables_is_found() {
        assert!(found_in("").await.is_empty());
        let pending = r#"INSERT INTO relais_outbox VALUES (1, 'PENDING', '{"name": "s7-1"}', NULL, 's7', 0, NULL)"#;
        assert_eq!(found_in(pending).await.count("stranded"), 1);
        let parked = "INSERT INTO relais_parked_key VALUES ('s7')";
        assert_eq!(found_in(parked).await.count("stranded"), 1);
        let owned = "INSERT INTO relais_lane VALUES ('inbox', 3, 'worker-1');
             INSERT INTO relais_lease VALUES ('worker-1', '9999-01-01T00:00:00.000Z')";
        assert_eq!(found_in(owned).await.count("left locked"), 1);
        let expired = "INSERT INTO relais_lane VALUES ('inbox', 3, 'worker-1');
             INSERT INTO relais_lease VALUES ('worker-1', '2000-01-01T00:00:00.000Z')";
        assert!(found_in(expired).await.is_empty());
        let rewritten = "INSERT INTO rewritten VALUES ('outbox 1')";
        assert_eq!(found_in(rewritten).await.count("rewritten"), 1);
        let order = "INSERT INTO shop_order VALUES ('s7', 1)";
        assert_eq!(found_in(order).await.count("lost"), 1);
    }

    #[tokio::test]
    async fn a_dead_letter_is_undeserved_unless_its_key_is_a_poison_key() {
        let dead = |key: &str| {
            format!("INSERT INTO relais_dead_letter VALUES ('outbox', '{key}', 5, '503', 'busy')")
        };
        let count = async |rows: &str| found_in(rows).await.count("undeserved dead letter");
        assert_eq!(count(&dead("q7")).await, 1);
        assert_eq!(count(&dead("p0")).await, 1, "20 attempts take longer than a run");
        let behind = "INSERT INTO relais_parked_key VALUES ('q0'); \
                      INSERT INTO relais_outbox VALUES (1, 'PENDING', '{}', NULL, 'q0', 0, NULL)";
        let found = found_in(&format!("{}; {behind}", dead("q0"))).await;
        assert!(found.is_empty(), "{found}");
    }

    #[tokio::test]
    async fn an_open_write_transaction_is_a_lock_left_behind() {
        let (_folder, base) = tables("").await;
        let mut other = base.connect().await.unwrap();
        other.run("BEGIN IMMEDIATE").await.unwrap();
        let closed = close(&[]);
        let known = CheckInput { base: &base, posted: &[], closed: &closed, unwell: &[] };
        assert_eq!(check(known).await.unwrap().count("left locked"), 1);
    }
}
