//! Few rows, at once: up to 200 in one call, one result for each.
//!
//! Invariant: rows are upserted by their external id, so a call whose answer was lost can be repeated.
//! Results come in the order of the rows; a row's failure is its own (`allOrNone` is false).

use std::{fmt, ops::Range, sync::Arc};

use relais_core::{
    BoxFuture, InvalidSettings,
    delivery::Delivery,
    hydrate::Hydrator,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::Method;
use serde::Deserialize;

use super::{
    budget::Budget,
    classify::{Class, Failure, spare_rows_of_wrong_settings, wants_fewer_neighbours},
    client::{Call, Client},
    columns::Mapping,
    parts,
    record::{Records, Unfit},
    settings::SalesforceSettings,
};

/// The most records of a call.
const ROWS_MAX: usize = 200;
/// The first version with upserts of collections.
const OLDEST: u32 = 46;

/// Upserts rows through sObject Collections.
pub struct SalesforceCollections {
    client: Client,
    records: Records,
    object: String,
}

/// A row as it is sent.
struct Item {
    index: usize,
    json: String,
    /// How many rows may go along with it.
    together_max: usize,
}

impl SalesforceCollections {
    /// Checks the settings; connects to nobody yet. The error says which setting to change.
    pub fn new(
        settings: SalesforceSettings,
        hydrator: Option<Arc<dyn Hydrator>>,
    ) -> Result<Self, InvalidSettings> {
        settings.check_object()?;
        settings.check(OLDEST)?;
        Ok(Self {
            client: Client::new(&settings)?,
            records: Records::new(Mapping::new(&settings)?, hydrator),
            object: settings.object,
        })
    }

    /// What is left of the org's daily calls.
    pub fn budget(&self) -> &Budget {
        self.client.budget()
    }

    async fn deliver(&self, rows: &[OutboxRow]) -> Vec<Delivery> {
        let (mut items, mut answers) = match self.items(rows).await {
            Ok(prepared) => prepared,
            Err(failure) => return vec![failure.delivery(); rows.len()],
        };
        items.sort_by_key(|item| std::cmp::Reverse(item.together_max));
        let mut sent = parts::send(&items, split(&items), self).await;
        spare_rows_of_wrong_settings(&mut sent);
        for (item, delivery) in items.iter().zip(sent) {
            answers[item.index] = delivery;
        }
        answers
    }

    /// What is to be sent, and the answers for all other rows.
    async fn items(&self, rows: &[OutboxRow]) -> Result<(Vec<Item>, Vec<Delivery>), Failure> {
        let gathered = self.records.gather(rows).await?;
        let mut answers = vec![Delivery::Held; rows.len()];
        for (index, delivery) in &gathered.left_out {
            answers[*index] = delivery.clone();
        }
        let (mut items, mut cells) = (Vec::with_capacity(gathered.chosen.len()), Vec::new());
        for index in gathered.chosen.iter().copied() {
            let row = &rows[index];
            match self.records.cells(row, &gathered, &mut cells) {
                Ok(()) => {
                    let mapping = &self.records.mapping;
                    let json = mapping.json(&self.object, &row.aggregate_id, &cells);
                    items.push(Item { index, json, together_max: together_max(row) });
                }
                Err(Unfit::Row(delivery)) => answers[index] = delivery,
                Err(Unfit::Settings(failure)) => return Err(failure),
            }
        }
        Ok((items, answers))
    }

    async fn call(&self, part: &[Item]) -> Result<Vec<Delivery>, Failure> {
        let mut body = String::from("{\"allOrNone\":false,\"records\":[");
        for (number, item) in part.iter().enumerate() {
            if number > 0 {
                body.push(',');
            }
            body.push_str(&item.json);
        }
        body.push_str("]}");
        let external_id = &self.records.mapping.external_id;
        let path = format!("composite/sobjects/{}/{external_id}", self.object);
        let results: Vec<RowResult> =
            self.client.ask(Call::rows(Method::PATCH, &path, body)).await?;
        if results.len() != part.len() {
            let why = format!("{} results for {} rows", results.len(), part.len());
            return Err(Failure::new(Class::Unknown, "ANSWER_UNREADABLE", &why));
        }
        Ok(results.iter().map(|result| self.judge(result)).collect())
    }

    fn judge(&self, result: &RowResult) -> Delivery {
        if result.success {
            return Delivery::Accepted;
        }
        match result.errors.first() {
            Some(error) => self.client.judge.row(&error.code, &error.message),
            None => Delivery::retry("UNKNOWN_EXCEPTION", "Salesforce refused it without a reason"),
        }
    }
}

#[derive(Deserialize)]
struct RowResult {
    success: bool,
    #[serde(default)]
    errors: Vec<RowError>,
}

#[derive(Deserialize)]
struct RowError {
    #[serde(rename = "statusCode")]
    code: String,
    #[serde(default)]
    message: String,
}

/// A row that failed because it was not alone gets fewer neighbours each time, in the end none.
fn together_max(row: &OutboxRow) -> usize {
    let (code, message) = (row.error_code.as_deref(), row.error_message.as_deref());
    if wants_fewer_neighbours(code.unwrap_or_default(), message.unwrap_or_default()) {
        (ROWS_MAX >> row.attempts.saturating_mul(3).min(16)).max(1)
    } else {
        ROWS_MAX
    }
}

/// Parts in which no row has more neighbours than it may. The items are in falling order of that.
fn split(items: &[Item]) -> Vec<Range<usize>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for end in 1..=items.len() {
        let full = items.get(end).is_none_or(|next| end - start >= next.together_max);
        if full {
            parts.push(start..end);
            start = end;
        }
    }
    parts
}

impl parts::Send<Item> for SalesforceCollections {
    fn send<'a>(&'a self, part: &'a [Item]) -> BoxFuture<'a, Result<Vec<Delivery>, Failure>> {
        Box::pin(self.call(part))
    }
}

impl Publisher for SalesforceCollections {
    fn publish<'a>(&'a self, messages: &'a [OutboxRow]) -> BoxFuture<'a, Vec<Delivery>> {
        Box::pin(self.deliver(messages))
    }

    fn batching(&self) -> Batching {
        Batching::Distinct { max: ROWS_MAX }
    }
}

impl fmt::Debug for SalesforceCollections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = format!("{} at {}", self.object, self.client.origin());
        f.debug_tuple("SalesforceCollections").field(&shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    fn sizes(limits: &[usize]) -> Vec<usize> {
        let item = |(index, limit): (usize, &usize)| Item {
            index,
            json: String::new(),
            together_max: *limit,
        };
        let mut items: Vec<Item> = limits.iter().enumerate().map(item).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.together_max));
        split(&items).into_iter().map(|part| part.len()).collect()
    }

    #[test]
    fn rows_that_were_too_many_go_with_fewer_and_then_alone() {
        let after = |attempts, code: &str| {
            let mut row = row("{}");
            (row.attempts, row.error_code) = (attempts, Some(code.to_owned()));
            together_max(&row)
        };
        assert_eq!(after(1, "STALE_READ"), 200);
        assert_eq!(after(1, "UNABLE_TO_LOCK_ROW"), 25);
        assert_eq!(after(2, "UNABLE_TO_LOCK_ROW"), 3);
        assert_eq!(after(3, "UNABLE_TO_LOCK_ROW"), 1);
        assert_eq!(after(u32::MAX, "UNABLE_TO_LOCK_ROW"), 1);
    }

    #[test]
    fn parts_keep_the_limit_of_each_row() {
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[200; 200]), [200]);
        assert_eq!(sizes(&[200, 1, 200, 1]), [2, 1, 1]);
        assert_eq!(sizes(&[200, 3, 3, 3, 3]), [3, 2]);
    }
}
