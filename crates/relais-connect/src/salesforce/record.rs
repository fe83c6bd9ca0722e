//! From an outbox row to the values of a record: by the column mapping, from the payload or from
//! fresh data.
//!
//! Invariant: values keep their text. A number goes as it was written, a date as it is; what is
//! absent in a payload stays absent (Salesforce leaves the field alone), null stays null (the field
//! is emptied).

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use relais_core::{
    delivery::Delivery,
    hydrate::{Hydrated, Hydrator, Record},
    json,
    outbox::OutboxRow,
    store::StoreError,
};
use serde_json::{Value, value::RawValue};

use super::{
    classify::{Class, Failure},
    columns::{Column, Field, Mapping},
    csv::NUL,
    key::Keys,
    settings::OnMissing,
};

/// Where a message says which version of the row it is about.
const VERSION_FIELDS: [&str; 2] = ["version", "asOfVersion"];

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    /// Nothing is said about it.
    Absent,
    Null,
    Text(Cow<'a, str>),
    /// A number or boolean, as written.
    Plain(Cow<'a, str>),
}

/// Why there are no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The answer for this row.
    Row(Delivery),
    /// No row can be read with these settings.
    Settings(Failure),
}

/// Rows become records here.
pub(super) struct Records {
    pub(super) mapping: Mapping,
    hydrator: Option<Arc<dyn Hydrator>>,
}

/// Rows that can go, with what was read for them.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Indexes into the rows asked for, in order.
    pub(super) chosen: Vec<usize>,
    /// Answers for all others.
    pub(super) left_out: Vec<(usize, Delivery)>,
    fresh: Option<Hydrated>,
}

impl Records {
    pub(super) fn new(mapping: Mapping, hydrator: Option<Arc<dyn Hydrator>>) -> Self {
        Self { mapping, hydrator }
    }

    /// Chooses one row for each record and reads fresh data for all of them at once.
    pub(super) async fn gather(&self, rows: &[OutboxRow]) -> Result<Gathered, Failure> {
        let mut keys = Keys::with_capacity(rows.len());
        let (mut chosen, mut left_out) = (Vec::with_capacity(rows.len()), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            match keys.admit(&row.aggregate_id) {
                Ok(()) => chosen.push(index),
                Err(delivery) => left_out.push((index, delivery)),
            }
        }
        let Some(hydrator) = self.hydrator.as_ref().filter(|_| !chosen.is_empty()) else {
            return Ok(Gathered { chosen, left_out, fresh: None });
        };
        let ids = chosen.iter().map(|index| rows[*index].aggregate_id.clone()).collect();
        let fresh = hydrator.hydrate(ids).await.map_err(not_read)?;
        let mut ready = Vec::with_capacity(chosen.len());
        for index in chosen {
            match self.judge(&rows[index], &fresh) {
                Ok(()) => ready.push(index),
                Err(Unfit::Row(delivery)) => left_out.push((index, delivery)),
                Err(Unfit::Settings(failure)) => return Err(failure),
            }
        }
        Ok(Gathered { chosen: ready, left_out, fresh: Some(fresh) })
    }

    /// Whether the fresh row is there, and not older than the message.
    fn judge(&self, row: &OutboxRow, fresh: &Hydrated) -> Result<(), Unfit> {
        if let Some(why) = fresh.failed.get(&row.aggregate_id) {
            // The row may be corrected meanwhile, so it gets its attempts.
            return Err(Unfit::Row(Delivery::retry("HYDRATE_FAILED", why)));
        }
        let Some(record) = fresh.records.get(&row.aggregate_id) else {
            return Err(Unfit::Row(match self.mapping.on_missing {
                OnMissing::Skip => Delivery::Accepted,
                OnMissing::Reject => Delivery::reject(
                    "ROW_MISSING",
                    &format!("the hydrate query has no row with the id {:?}", row.aggregate_id),
                ),
            }));
        };
        let Some(column) = &self.mapping.version else { return Ok(()) };
        let Some(wanted) = version_of(&row.payload) else { return Ok(()) };
        let found = find(record, column).ok_or_else(|| missing_column(column))?;
        let Some(found) = integer(found) else {
            let why = format!("the column `{column}` of the fresh row is no whole number");
            return Err(Unfit::Row(Delivery::reject("VERSION_UNREADABLE", &why)));
        };
        if found < wanted {
            let why = format!("the message is about version {wanted}, the row read has {found}");
            return Err(Unfit::Row(Delivery::retry("STALE_READ", &why)));
        }
        Ok(())
    }

    /// The values of a row, one for each column of the mapping, in `cells`.
    pub(super) fn cells<'a>(
        &'a self,
        row: &'a OutboxRow,
        gathered: &'a Gathered,
        cells: &mut Vec<Cell<'a>>,
    ) -> Result<(), Unfit> {
        cells.clear();
        let record = gathered.fresh.as_ref().and_then(|fresh| fresh.records.get(&row.aggregate_id));
        let mut top = None;
        for column in &self.mapping.columns {
            let cell = match (&column.field, record) {
                (Field::Name(name), Some(record)) => {
                    let value = find(record, name).ok_or_else(|| missing_column(name))?;
                    of_value(value, column)?
                }
                (Field::Name(name), None) => {
                    if top.is_none() {
                        top = Some(fields(&row.payload)?);
                    }
                    let found = top.as_ref().and_then(|fields| fields.get(name.as_str()));
                    found.map_or(Ok(Cell::Absent), |raw| of_json(raw.get(), column))?
                }
                (Field::Pointer(pointer), _) => json::pointer(&row.payload, pointer)
                    .map_or(Ok(Cell::Absent), |raw| of_json(raw, column))?,
            };
            if matches!(&cell, Cell::Text(text) if text.contains('\0')) {
                let why = format!("{}: {NUL}", column.name);
                return Err(Unfit::Row(Delivery::reject("VALUE_INVALID", &why)));
            }
            cells.push(cell);
        }
        Ok(())
    }
}

fn not_read(error: StoreError) -> Failure {
    match error {
        StoreError::Unavailable(why) => Failure::new(Class::Down, "DATABASE_AWAY", &why),
        other => {
            Failure::new(Class::Settings, "HYDRATE_FAILED", &format!("{other}; correct `hydrate`"))
        }
    }
}

fn missing_column(name: &str) -> Unfit {
    let why = format!("the fresh rows have no column `{name}`; correct `hydrate` or `columns`");
    Unfit::Settings(Failure::new(Class::Settings, "COLUMN_MISSING", &why))
}

/// A column by its name; databases write names in their own case.
fn find<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
    record.get(name).or_else(|| {
        record.iter().find(|(column, _)| column.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn fields(payload: &str) -> Result<Fields<'_>, Unfit> {
    serde_json::from_str(payload).map_err(|_| {
        Unfit::Row(Delivery::reject(
            "PAYLOAD_NOT_OBJECT",
            "the payload is no JSON object, so it has no fields for `columns`",
        ))
    })
}

fn version_of(payload: &str) -> Option<i128> {
    let fields = fields(payload).ok()?;
    let raw = VERSION_FIELDS.iter().find_map(|name| fields.get(*name))?;
    json::text(raw.get())?.parse().ok()
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn of_value<'a>(value: &'a Value, column: &Column) -> Result<Cell<'a>, Unfit> {
    Ok(match value {
        Value::Null => Cell::Null,
        Value::String(text) => Cell::Text(Cow::Borrowed(text)),
        Value::Bool(true) => Cell::Plain("true".into()),
        Value::Bool(false) => Cell::Plain("false".into()),
        Value::Number(number) => Cell::Plain(number.to_string().into()),
        Value::Array(_) | Value::Object(_) => return Err(not_plain(column)),
    })
}

fn of_json<'a>(raw: &'a str, column: &Column) -> Result<Cell<'a>, Unfit> {
    let raw = raw.trim();
    match raw.as_bytes().first() {
        Some(b'n') => Ok(Cell::Null),
        Some(b'"') => text(raw).map(Cell::Text).ok_or_else(|| {
            let why = format!("the value for {} is not Unicode", column.name);
            Unfit::Row(Delivery::reject("VALUE_INVALID", &why))
        }),
        Some(b'{' | b'[') | None => Err(not_plain(column)),
        Some(_) => Ok(Cell::Plain(Cow::Borrowed(raw))),
    }
}

/// The text of a JSON string, borrowed if nothing in it is escaped.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

fn not_plain(column: &Column) -> Unfit {
    let why = format!(
        "the value for {} is an object or list; name a part of it by a JSON pointer",
        column.name
    );
    Unfit::Row(Delivery::reject("VALUE_INVALID", &why))
}

#[cfg(test)]
mod tests;
