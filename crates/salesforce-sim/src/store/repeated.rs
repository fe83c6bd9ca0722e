//! Detects a key that is repeated in one transaction: none of its rows is written.

use std::collections::HashMap;

use super::{Operation, change::RowChange};
use crate::{
    id::Id,
    row_error::RowError,
    schema::{ID, SchemaObject},
    value::FieldValue,
};

/// Returns the error of each row that shares its key with another one.
pub(crate) fn repeated<'a>(
    rows: impl Iterator<Item = Option<(&'a SchemaObject, Operation, &'a RowChange)>> + Clone,
) -> Vec<Option<RowError>> {
    let key =
        |row: Option<_>| row.and_then(|(object, operation, change)| key(object, operation, change));
    let keys: Vec<Option<RepeatedKey>> = rows.map(key).collect();
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for key in keys.iter().flatten() {
        *counts.entry(&key.compared).or_default() += 1;
    }
    let error = |key: &Option<RepeatedKey>| {
        let key = key.as_ref().filter(|key| counts[key.compared.as_str()] > 1)?;
        let message = format!("Duplicate {} specified: {}", key.what, key.shown);
        Some(RowError::new("DUPLICATE_VALUE", message).on(&key.field))
    };
    keys.iter().map(error).collect()
}

struct RepeatedKey {
    compared: String,
    shown: String,
    what: &'static str,
    field: String,
}

fn key(object: &SchemaObject, operation: Operation, change: &RowChange) -> Option<RepeatedKey> {
    match operation {
        Operation::Insert => None,
        Operation::Upsert(field) if field != ID => {
            let (value, definition): (&FieldValue, _) = (change.get(field)?, &object.fields[field]);
            let compared = value.index_key(definition);
            let field = definition.name.clone();
            Some(RepeatedKey { compared, shown: value.to_cell(), what: "external id", field })
        }
        _ => {
            let compared = Id::parse(change.id.as_deref()?)?.to_string();
            Some(RepeatedKey {
                shown: compared.clone(),
                compared,
                what: "id",
                field: "Id".to_owned(),
            })
        }
    }
}
