//! Converts an outbox row to the values of a record, by the column mapping, from the payload or
//! from fresh data.
//!
//! Invariant: values keep their text. Numbers and dates are sent as written. An absent value stays
//! absent (Salesforce leaves the field unchanged), null stays null (the field is cleared).

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use relais_core::{
    delivery::Delivery,
    hydrate::{HydratedRecords, Hydrator, Record},
    json,
    outbox::OutboxRow,
    store::StoreError,
};
use serde_json::{Value, value::RawValue};

use super::{
    classify::{Class, SalesforceFailure},
    columns::{ColumnMapping, FieldSource, MappedColumn},
    csv::NUL,
    external_id::ExternalIds,
    settings::OnMissing,
};

/// The fields of a message with the version of its row.
const VERSION_FIELDS: [&str; 2] = ["version", "asOfVersion"];

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    /// Not present.
    Absent,
    Null,
    Text(Cow<'a, str>),
    /// A number or boolean, as written.
    Plain(Cow<'a, str>),
}

/// The reason why a row has no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowValueError {
    /// The delivery of this row.
    Row(Delivery),
    /// No row can be converted with these settings.
    Settings(SalesforceFailure),
}

/// Converts rows to records.
pub(super) struct RowValues {
    pub(super) mapping: ColumnMapping,
    hydrator: Option<Arc<dyn Hydrator>>,
}

/// Rows that can be sent, with their fresh data.
#[derive(Debug)]
pub(super) struct ReadyRows {
    /// Indexes into the given rows, in order.
    pub(super) chosen: Vec<usize>,
    /// Deliveries of all other rows.
    pub(super) left_out: Vec<(usize, Delivery)>,
    fresh: Option<HydratedRecords>,
}

impl RowValues {
    pub(super) fn new(mapping: ColumnMapping, hydrator: Option<Arc<dyn Hydrator>>) -> Self {
        Self { mapping, hydrator }
    }

    /// Chooses one row per record and reads the fresh data of all of them at once.
    pub(super) async fn select(&self, rows: &[OutboxRow]) -> Result<ReadyRows, SalesforceFailure> {
        let mut keys = ExternalIds::with_capacity(rows.len());
        let (mut chosen, mut left_out) = (Vec::with_capacity(rows.len()), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            match is_json(row).and_then(|()| keys.admit(&row.aggregate_id)) {
                Ok(()) => chosen.push(index),
                Err(delivery) => left_out.push((index, delivery)),
            }
        }
        let Some(hydrator) = self.hydrator.as_ref().filter(|_| !chosen.is_empty()) else {
            return Ok(ReadyRows { chosen, left_out, fresh: None });
        };
        let ids = chosen.iter().map(|index| rows[*index].aggregate_id.clone()).collect();
        let fresh = hydrator.hydrate(ids).await.map_err(not_read)?;
        let mut ready = Vec::with_capacity(chosen.len());
        for index in chosen {
            match self.judge(&rows[index], &fresh) {
                Ok(()) => ready.push(index),
                Err(RowValueError::Row(delivery)) => left_out.push((index, delivery)),
                Err(RowValueError::Settings(failure)) => return Err(failure),
            }
        }
        Ok(ReadyRows { chosen: ready, left_out, fresh: Some(fresh) })
    }

    /// Checks that the fresh row exists and is not older than the message.
    fn judge(&self, row: &OutboxRow, fresh: &HydratedRecords) -> Result<(), RowValueError> {
        if let Some(why) = fresh.failed.get(&row.aggregate_id) {
            // The row may be corrected meanwhile, so it uses its attempts.
            return Err(RowValueError::Row(Delivery::retry("HYDRATE_FAILED", why)));
        }
        let Some(record) = fresh.records.get(&row.aggregate_id) else {
            return Err(RowValueError::Row(match self.mapping.on_missing {
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
            let why = format!("the column `{column}` of the fresh row is not an integer");
            return Err(RowValueError::Row(Delivery::reject("VERSION_UNREADABLE", &why)));
        };
        if found < wanted {
            let why = format!("the message is about version {wanted}, the row read has {found}");
            return Err(RowValueError::Row(Delivery::retry("STALE_READ", &why)));
        }
        Ok(())
    }

    /// Writes the values of a row to `cells`, one per column of the mapping.
    pub(super) fn cells<'a>(
        &'a self,
        row: &'a OutboxRow,
        gathered: &'a ReadyRows,
        cells: &mut Vec<Cell<'a>>,
    ) -> Result<(), RowValueError> {
        cells.clear();
        let record = gathered.fresh.as_ref().and_then(|fresh| fresh.records.get(&row.aggregate_id));
        let mut top = None;
        for column in &self.mapping.columns {
            let cell = match (&column.field, record) {
                (FieldSource::Name(name), Some(record)) => {
                    let value = find(record, name).ok_or_else(|| missing_column(name))?;
                    of_value(value, column)?
                }
                (FieldSource::Name(name), None) => {
                    if top.is_none() {
                        top = Some(fields(&row.payload)?);
                    }
                    let found = top.as_ref().and_then(|fields| fields.get(name.as_str()));
                    found.map_or(Ok(Cell::Absent), |raw| of_json(raw.get(), column))?
                }
                (FieldSource::Pointer(pointer), _) => json::pointer(&row.payload, pointer)
                    .map_or(Ok(Cell::Absent), |raw| of_json(raw, column))?,
            };
            if matches!(&cell, Cell::Text(text) if text.contains('\0')) {
                let why = format!("{}: {NUL}", column.name);
                return Err(RowValueError::Row(Delivery::reject("VALUE_INVALID", &why)));
            }
            cells.push(cell);
        }
        Ok(())
    }
}

/// Rejects a payload that is no JSON: a row of an adopted table is not validated when it is copied. Without this a
/// record without its values would be sent.
fn is_json(row: &OutboxRow) -> Result<(), Delivery> {
    match json::check(row.payload.as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Delivery::reject("INVALID_JSON", &format!("the payload is not JSON: {error}")))
        }
    }
}

fn not_read(error: StoreError) -> SalesforceFailure {
    match error {
        StoreError::Unavailable(why) => SalesforceFailure::new(Class::Down, "DATABASE_AWAY", &why),
        other => SalesforceFailure::new(
            Class::Settings,
            "HYDRATE_FAILED",
            &format!("{other}; correct `hydrate`"),
        ),
    }
}

fn missing_column(name: &str) -> RowValueError {
    let why = format!("the fresh rows have no column `{name}`; correct `hydrate` or `columns`");
    RowValueError::Settings(SalesforceFailure::new(Class::Settings, "COLUMN_MISSING", &why))
}

/// Returns a column by name, ignoring case: databases spell names differently.
fn find<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
    record.get(name).or_else(|| {
        record.iter().find(|(column, _)| column.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn fields(payload: &str) -> Result<Fields<'_>, RowValueError> {
    serde_json::from_str(payload).map_err(|_| {
        RowValueError::Row(Delivery::reject(
            "PAYLOAD_NOT_OBJECT",
            "the payload is not a JSON object, so it has no fields for `columns`",
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

fn of_value<'a>(value: &'a Value, column: &MappedColumn) -> Result<Cell<'a>, RowValueError> {
    Ok(match value {
        Value::Null => Cell::Null,
        Value::String(text) => Cell::Text(Cow::Borrowed(text)),
        Value::Bool(true) => Cell::Plain("true".into()),
        Value::Bool(false) => Cell::Plain("false".into()),
        Value::Number(number) => Cell::Plain(number.to_string().into()),
        Value::Array(_) | Value::Object(_) => return Err(not_plain(column)),
    })
}

fn of_json<'a>(raw: &'a str, column: &MappedColumn) -> Result<Cell<'a>, RowValueError> {
    let raw = raw.trim();
    match raw.as_bytes().first() {
        Some(b'n') => Ok(Cell::Null),
        Some(b'"') => text(raw).map(Cell::Text).ok_or_else(|| {
            let why = format!("the value for {} is not Unicode", column.name);
            RowValueError::Row(Delivery::reject("VALUE_INVALID", &why))
        }),
        Some(b'{' | b'[') | None => Err(not_plain(column)),
        Some(_) => Ok(Cell::Plain(Cow::Borrowed(raw))),
    }
}

/// Returns the text of a JSON string, borrowed if nothing is escaped.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

fn not_plain(column: &MappedColumn) -> RowValueError {
    let why = format!(
        "the value for {} is an object or array; select a part of it with a JSON pointer",
        column.name
    );
    RowValueError::Row(Delivery::reject("VALUE_INVALID", &why))
}

#[cfg(test)]
mod tests;
