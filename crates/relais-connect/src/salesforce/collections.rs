//! Few rows at once: up to 200 in one call, with one result each.
//!
//! Invariant: rows are upserted by their external id, so a call whose response was lost can be
//! repeated. Results are in the order of the rows; a row fails alone (`allOrNone` is false).

use std::{fmt, ops::Range, sync::Arc};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    hydrate::Hydrator,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::Method;
use serde::Deserialize;

use super::{
    batch_split::{BatchCall, send_split},
    budget::ApiCallBudget,
    classify::{Class, SalesforceFailure, spare_rows_of_wrong_settings, wants_fewer_neighbours},
    client::{ApiCall, SalesforceClient},
    columns::ColumnMapping,
    row_values::{RowValueError, RowValues},
    settings::SalesforceSettings,
};

/// Maximum number of records in a call.
const ROWS_MAX: usize = 200;
/// The first API version with upserts of collections.
const OLDEST: u32 = 46;

/// Upserts rows through sObject Collections.
pub struct SalesforceCollections {
    client: SalesforceClient,
    records: RowValues,
    object: String,
}

/// A row as it is sent.
struct CollectionRecord {
    index: usize,
    json: String,
    /// Maximum number of rows in its call.
    together_max: usize,
}

impl SalesforceCollections {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(
        settings: SalesforceSettings,
        hydrator: Option<Arc<dyn Hydrator>>,
    ) -> Result<Self, InvalidSettings> {
        settings.check_object()?;
        settings.check(OLDEST)?;
        Ok(Self {
            client: SalesforceClient::new(&settings)?,
            records: RowValues::new(ColumnMapping::new(&settings)?, hydrator),
            object: settings.object,
        })
    }

    /// Returns the budget of the org's daily calls.
    pub fn budget(&self) -> &ApiCallBudget {
        self.client.budget()
    }

    /// Returns the records to send, and the deliveries of all other rows.
    async fn items(
        &self,
        rows: &[OutboxRow],
    ) -> Result<(Vec<CollectionRecord>, Vec<Delivery>), SalesforceFailure> {
        let gathered = self.records.select(rows).await?;
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
                    items.push(CollectionRecord { index, json, together_max: together_max(row) });
                }
                Err(RowValueError::Row(delivery)) => answers[index] = delivery,
                Err(RowValueError::Settings(failure)) => return Err(failure),
            }
        }
        Ok((items, answers))
    }

    fn judge(&self, result: &RowResult) -> Delivery {
        if result.success {
            return Delivery::Accepted;
        }
        match result.errors.first() {
            Some(error) => self.client.judge.row(&error.code, &error.message),
            None => {
                Delivery::retry("UNKNOWN_EXCEPTION", "Salesforce refused the row without a reason")
            }
        }
    }
}

#[derive(Deserialize)]
struct RowResult {
    success: bool,
    #[serde(default)]
    errors: Vec<CollectionError>,
}

#[derive(Deserialize)]
struct CollectionError {
    #[serde(rename = "statusCode")]
    code: String,
    #[serde(default)]
    message: String,
}

/// Returns the maximum number of rows in a call with this row. A row that failed because of other
/// rows gets fewer each time, finally none.
fn together_max(row: &OutboxRow) -> usize {
    let (code, message) = (row.error_code.as_deref(), row.error_message.as_deref());
    if wants_fewer_neighbours(code.unwrap_or_default(), message.unwrap_or_default()) {
        (ROWS_MAX >> row.attempts.saturating_mul(3).min(16)).max(1)
    } else {
        ROWS_MAX
    }
}

/// Splits into parts in which no row has more other rows than allowed. The items are in falling
/// order of that limit.
fn split(items: &[CollectionRecord]) -> Vec<Range<usize>> {
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

#[async_trait]
impl BatchCall<CollectionRecord> for SalesforceCollections {
    async fn call(&self, part: &[CollectionRecord]) -> Result<Vec<Delivery>, SalesforceFailure> {
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
            self.client.ask(ApiCall::rows(Method::PATCH, &path, body)).await?;
        if results.len() != part.len() {
            let why = format!("{} results for {} rows", results.len(), part.len());
            return Err(SalesforceFailure::new(Class::Unknown, "ANSWER_UNREADABLE", &why));
        }
        Ok(results.iter().map(|result| self.judge(result)).collect())
    }
}

#[async_trait]
impl Publisher for SalesforceCollections {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let (mut items, mut answers) = match self.items(messages).await {
            Ok(prepared) => prepared,
            Err(failure) => return vec![failure.delivery(); messages.len()],
        };
        items.sort_by_key(|item| std::cmp::Reverse(item.together_max));
        let mut sent = send_split(&items, split(&items), self).await;
        spare_rows_of_wrong_settings(&mut sent);
        for (item, delivery) in items.iter().zip(sent) {
            answers[item.index] = delivery;
        }
        answers
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
        let item = |(index, limit): (usize, &usize)| CollectionRecord {
            index,
            json: String::new(),
            together_max: *limit,
        };
        let mut items: Vec<CollectionRecord> = limits.iter().enumerate().map(item).collect();
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
