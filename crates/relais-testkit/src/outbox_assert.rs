//! [`assert_outbox!`](crate::assert_outbox): what a test expects to find in the outbox, and a failure
//! that can be read.

use std::fmt::{self, Write as _};

use relais_core::{
    inspect::{Inspect, InspectExt},
    outbox::OutboxRow,
    query::{Filter, PAGE_MAX},
};
use serde_json::Value;

/// Most outbox rows of one test; a test with more counts them in SQL.
const ROWS_MAX: usize = 10_000;

/// The outbox holds exactly these messages, oldest first; or, with `in any order`, these.
///
/// ```no_run
/// # async fn example(store: &dyn relais_core::store::StoreDriver) {
/// use relais_testkit::{assert_outbox, sent};
/// use serde_json::json;
///
/// assert_outbox!(store, [
///     sent("OrderPlaced").to("orders").key("o-1").payload(json!({"cents": 1999})),
///     sent("MailRequested").to("mail").times(2),
/// ]);
/// # }
/// ```
#[macro_export]
macro_rules! assert_outbox {
    ($store:expr, [$($expected:expr),* $(,)?]) => {
        $crate::outbox_assert::check(&*$store, &[$($expected),*], $crate::outbox_assert::ListOrder::AsListed).await
    };
    ($store:expr, in any order [$($expected:expr),* $(,)?]) => {
        $crate::outbox_assert::check(&*$store, &[$($expected),*], $crate::outbox_assert::ListOrder::Any).await
    };
}

/// One expected message: what is not said may be anything.
#[derive(Clone, Debug)]
pub struct ExpectedMessage {
    event_type: String,
    destination: Option<String>,
    key: Option<String>,
    payload: Option<Value>,
    headers: Vec<(String, String)>,
    times: usize,
}

/// A message of this type.
pub fn sent(event_type: &str) -> ExpectedMessage {
    ExpectedMessage {
        event_type: event_type.to_owned(),
        destination: None,
        key: None,
        payload: None,
        headers: Vec::new(),
        times: 1,
    }
}

impl ExpectedMessage {
    /// Expects this destination.
    #[must_use]
    pub fn to(mut self, destination: &str) -> Self {
        self.destination = Some(destination.to_owned());
        self
    }

    /// Expects this ordering key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// The payload has these fields with these values, and perhaps others. Lists are compared whole.
    #[must_use]
    pub fn payload(mut self, part: Value) -> Self {
        self.payload = Some(part);
        self
    }

    /// Expects this header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Expects this many of them, one after the other.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Returns the differences of a row; empty if it fits.
    fn objections(&self, row: &OutboxRow) -> Vec<String> {
        let mut found = Vec::new();
        let mut differs = |what: &str, expected: &str, is: &str| {
            if expected != is {
                found.push(format!("{what}: expected {expected:?}, found {is:?}"));
            }
        };
        differs("type", &self.event_type, &row.event_type);
        differs(
            "destination",
            self.destination.as_ref().unwrap_or(&row.destination),
            &row.destination,
        );
        differs("key", self.key.as_ref().unwrap_or(&row.msg_key), &row.msg_key);
        for (name, value) in &self.headers {
            differs(&format!("header {name}"), value, row.headers.get(name).unwrap_or("(none)"));
        }
        if let Some(part) = &self.payload {
            match serde_json::from_str(&row.payload) {
                Ok(whole) => compare("payload", part, &whole, &mut found),
                Err(error) => found.push(format!("payload: not JSON: {error}")),
            }
        }
        found
    }
}

impl fmt::Display for ExpectedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.event_type)?;
        if let Some(destination) = &self.destination {
            write!(f, " to {destination}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(payload) = &self.payload {
            write!(f, ", with {payload}")?;
        }
        self.headers.iter().try_for_each(|(name, value)| write!(f, ", header {name}: {value}"))
    }
}

/// The meaning of the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// Oldest first. Messages of different keys may come in any order when handlers run at the same
    /// time; those of one key never do.
    AsListed,
    /// Any order.
    Any,
}

/// The function behind [`assert_outbox!`](crate::assert_outbox).
///
/// # Panics
/// If the outbox is not as expected, with what differs.
pub async fn check<S: Inspect + ?Sized>(store: &S, expected: &[ExpectedMessage], order: ListOrder) {
    let rows = read(store).await;
    if let Some(report) = judge(expected, &rows, order) {
        panic!("{report}");
    }
}

/// All of the outbox, oldest first.
async fn read<S: Inspect + ?Sized>(store: &S) -> Vec<OutboxRow> {
    let mut rows: Vec<OutboxRow> = Vec::new();
    while rows.len() < ROWS_MAX {
        let before = rows.last().map(|row| row.id.to_string());
        let filter = Filter { before, limit: PAGE_MAX, ..Filter::default() };
        let page = store.list_outbox(filter).await.unwrap_or_else(|error| panic!("{error}"));
        let last = page.len() < PAGE_MAX;
        rows.extend(page);
        if last {
            rows.reverse();
            return rows;
        }
    }
    panic!("more than {ROWS_MAX} messages in the outbox; count them in SQL");
}

/// The report, if something is not as expected.
fn judge(expected: &[ExpectedMessage], rows: &[OutboxRow], order: ListOrder) -> Option<String> {
    let expected: Vec<&ExpectedMessage> =
        expected.iter().flat_map(|sent| std::iter::repeat_n(sent, sent.times)).collect();
    let pairs = match order {
        ListOrder::AsListed => in_order(&expected, rows),
        ListOrder::Any => any_order(&expected, rows),
    };
    let wrong = |(sent, row): &(Option<&ExpectedMessage>, Option<&OutboxRow>)| match (sent, row) {
        (Some(sent), Some(row)) => !sent.objections(row).is_empty(),
        _ => true,
    };
    if !pairs.iter().any(wrong) {
        return None;
    }
    let mut report = format!(
        "the outbox is not as expected: {} expected, {} found\n",
        expected.len(),
        rows.len()
    );
    for (number, pair) in pairs.iter().enumerate() {
        write!(report, "{:>4}. ", number + 1).expect("a string takes text");
        describe(&mut report, pair).expect("a string takes text");
    }
    Some(report)
}

type Pair<'a> = (Option<&'a ExpectedMessage>, Option<&'a OutboxRow>);

fn in_order<'a>(expected: &[&'a ExpectedMessage], rows: &'a [OutboxRow]) -> Vec<Pair<'a>> {
    let most = expected.len().max(rows.len());
    (0..most).map(|at| (expected.get(at).copied(), rows.get(at))).collect()
}

/// Each expected message takes the first row that fits; what is left over comes last. A general
/// expectation may take the row of a more exact one, so the exact ones choose first.
fn any_order<'a>(expected: &[&'a ExpectedMessage], rows: &'a [OutboxRow]) -> Vec<Pair<'a>> {
    let exactness = |sent: &ExpectedMessage| {
        let set = [sent.destination.is_some(), sent.key.is_some(), sent.payload.is_some()];
        set.into_iter().filter(|set| *set).count() + sent.headers.len()
    };
    let mut turns: Vec<usize> = (0..expected.len()).collect();
    turns.sort_by_key(|at| std::cmp::Reverse(exactness(expected[*at])));
    let mut left: Vec<&OutboxRow> = rows.iter().collect();
    let mut pairs: Vec<Pair<'_>> = expected.iter().map(|sent| (Some(*sent), None)).collect();
    for at in turns {
        let fits = left.iter().position(|row| expected[at].objections(row).is_empty());
        pairs[at].1 = fits.map(|found| left.remove(found));
    }
    pairs.extend(left.into_iter().map(|row| (None, Some(row))));
    pairs
}

fn describe(report: &mut String, pair: &Pair<'_>) -> fmt::Result {
    match pair {
        (Some(sent), Some(row)) => {
            let objections = sent.objections(row);
            if objections.is_empty() {
                return writeln!(report, "ok        {}", found(row));
            }
            writeln!(report, "DIFFERS   expected {sent}")?;
            writeln!(report, "                found    {}", found(row))?;
            objections.iter().try_for_each(|line| writeln!(report, "                {line}"))
        }
        (Some(sent), None) => writeln!(report, "MISSING   {sent}"),
        (None, Some(row)) => writeln!(report, "TOO MUCH  {}", found(row)),
        (None, None) => Ok(()),
    }
}

fn found(row: &OutboxRow) -> String {
    let OutboxRow { event_type, destination, msg_key, payload, .. } = row;
    format!("{event_type} to {destination}, key {msg_key}, {payload}")
}

/// Adds what of `part` is not in `whole`.
fn compare(place: &str, part: &Value, whole: &Value, found: &mut Vec<String>) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (name, value) in part {
                let place = format!("{place}/{name}");
                match whole.get(name) {
                    Some(is) => compare(&place, value, is, found),
                    None => found.push(format!("{place}: expected {value}, found nothing")),
                }
            }
        }
        (Value::Array(part), Value::Array(whole)) if part.len() == whole.len() => {
            for (at, (value, is)) in part.iter().zip(whole).enumerate() {
                compare(&format!("{place}/{at}"), value, is, found);
            }
        }
        _ if part == whole => {}
        _ => found.push(format!("{place}: expected {part}, found {whole}")),
    }
}
