//! Executes a query.

use std::{cmp::Ordering, collections::BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::parse::{Condition, Literal, Select, Sign, SoqlQuery, SortOrder};
use crate::{
    data::version::Version,
    id::Id,
    row_error::RowError,
    schema::{SchemaField, SchemaObject},
    store::{OrgTables, StoredRecord, attributes},
    value::FieldValue,
};

pub(super) enum QueryOutput {
    Count(usize),
    Rows(Vec<Json>),
}

pub(super) fn run(
    tables: &OrgTables,
    query: &SoqlQuery,
    version: Version,
) -> Result<QueryOutput, RowError> {
    let (scope, fields, records) = select(tables, query)?;
    if query.select == Select::Count {
        return Ok(QueryOutput::Count(records.len()));
    }
    let version = version.to_string();
    let rows: Result<Vec<Json>, RowError> =
        records.into_iter().map(|record| scope.row(record, &fields, &version)).collect();
    rows.map(QueryOutput::Rows)
}

/// Returns the names of the columns, as the org spells them, and the cells of each row in the
/// format of a bulk result.
pub(super) fn table(
    tables: &OrgTables,
    query: &SoqlQuery,
) -> Result<(Vec<String>, Vec<Vec<String>>), RowError> {
    let (scope, fields, records) = select(tables, query)?;
    let mut paths = Vec::with_capacity(fields.len());
    for name in &fields {
        paths.push(scope.path(name)?);
    }
    let name = |path: &Path<'_>| {
        let field = &path.object.fields[path.field].name;
        let lookup = path.lookup.and_then(|lookup| scope.object.fields[lookup].lookup.as_ref());
        lookup.map_or_else(|| field.clone(), |lookup| format!("{}.{field}", lookup.relationship))
    };
    let cell = |record: &StoredRecord, path: &Path<'_>| {
        scope.value(record, path).map(|value| value.to_cell()).unwrap_or_default()
    };
    let row = |record: &StoredRecord| paths.iter().map(|path| cell(record, path)).collect();
    Ok((paths.iter().map(name).collect(), records.into_iter().map(row).collect()))
}

type Selected<'a> = (QueryScope<'a>, Vec<String>, Vec<&'a StoredRecord>);

fn select<'a>(tables: &'a OrgTables, query: &SoqlQuery) -> Result<Selected<'a>, RowError> {
    let object = tables.schema.object(&query.object).ok_or_else(|| {
        let message = format!("sObject type '{}' is not supported.", query.object);
        RowError::new("INVALID_TYPE", message)
    })?;
    let scope = QueryScope { tables, object };
    let fields = match &query.select {
        Select::Count => Vec::new(),
        Select::Fields(fields) => scope.expand(fields),
    };
    // Names are checked even without rows.
    for name in fields.iter().chain(query.order.iter().map(|(name, _)| name)) {
        scope.path(name)?;
    }
    if let Some(condition) = &query.condition {
        scope.check(condition)?;
    }
    let mut records = Vec::new();
    let all: Vec<&StoredRecord> = match query.condition.as_ref().and_then(|it| scope.candidates(it))
    {
        Some(ids) => ids.into_iter().filter_map(|id| tables.get(object.index, id)).collect(),
        None => tables.all(object.index).collect(),
    };
    for record in &all {
        let fits = query.condition.as_ref().map_or(Ok(true), |it| scope.fits(record, it))?;
        if fits {
            records.push(*record);
        }
    }
    records.sort_by(|a, b| scope.order(a, b, &query.order));
    let limit = query.limit.unwrap_or(usize::MAX);
    let records = records.into_iter().skip(query.offset).take(limit).collect();
    Ok((scope, fields, records))
}

/// Resolves the names of a query.
struct QueryScope<'a> {
    tables: &'a OrgTables,
    object: &'a SchemaObject,
}

/// A field, possibly of the parent.
struct Path<'a> {
    lookup: Option<usize>,
    object: &'a SchemaObject,
    field: usize,
}

impl<'a> QueryScope<'a> {
    fn path(&self, name: &str) -> Result<Path<'a>, RowError> {
        let unknown = |object: &SchemaObject, name: &str| {
            let message = format!("No such column '{name}' on entity '{}'.", object.name);
            RowError::new("INVALID_FIELD", message)
        };
        let Some((relationship, name)) = name.split_once('.') else {
            let field = self.object.field(name).ok_or_else(|| unknown(self.object, name))?;
            return Ok(Path { lookup: None, object: self.object, field });
        };
        let found = self.object.relationship(relationship);
        let (lookup, definition) = found.ok_or_else(|| {
            let message = format!("Didn't understand relationship '{relationship}' in field path.");
            RowError::new("INVALID_FIELD", message)
        })?;
        let parent = &self.tables.schema.objects[definition.to];
        let field = parent.field(name).ok_or_else(|| unknown(parent, name))?;
        Ok(Path { lookup: Some(lookup), object: parent, field })
    }

    fn value(&self, record: &StoredRecord, path: &Path<'_>) -> Option<FieldValue> {
        match path.lookup {
            None => record.get(self.object, path.field),
            Some(lookup) => {
                let Some(FieldValue::Text(id)) = &record.values[lookup] else { return None };
                let parent = self.tables.get(path.object.index, Id::parse(id)?)?;
                parent.get(path.object, path.field)
            }
        }
    }

    fn expand(&self, fields: &[String]) -> Vec<String> {
        let all = fields.iter().any(|name| name.starts_with("FIELDS("));
        let names = || self.object.fields.iter().map(|field| field.name.clone()).collect();
        if all { names() } else { fields.to_vec() }
    }

    /// Returns the candidates of a condition, if an index knows them.
    fn candidates(&self, condition: &Condition) -> Option<BTreeSet<Id>> {
        let (field, values) = match condition {
            Condition::And(a, b) => return self.candidates(a).or_else(|| self.candidates(b)),
            Condition::Compare { field, sign: Sign::Equal, value } => {
                (field, std::slice::from_ref(value))
            }
            Condition::In { field, values } => (field, values.as_slice()),
            _ => return None,
        };
        let field = self.object.field(field)?;
        let definition = &self.object.fields[field];
        if !definition.is_indexed() && !definition.is_key() {
            return None;
        }
        let mut ids = BTreeSet::new();
        for value in values {
            let Literal::Text(text) = value else { return None };
            let value = wanted(definition, text).ok()?;
            ids.extend(self.tables.find(self.object, field, &value));
        }
        Some(ids)
    }

    /// Checks that all names of a condition are known.
    fn check(&self, condition: &Condition) -> Result<(), RowError> {
        match condition {
            Condition::And(a, b) | Condition::Or(a, b) => {
                self.check(a)?;
                self.check(b)
            }
            Condition::Not(inner) => self.check(inner),
            Condition::Compare { field, .. }
            | Condition::In { field, .. }
            | Condition::Like { field, .. } => self.path(field).map(|_| ()),
        }
    }

    fn fits(&self, record: &StoredRecord, condition: &Condition) -> Result<bool, RowError> {
        Ok(match condition {
            Condition::And(a, b) => self.fits(record, a)? & self.fits(record, b)?,
            Condition::Or(a, b) => self.fits(record, a)? | self.fits(record, b)?,
            Condition::Not(inner) => !self.fits(record, inner)?,
            Condition::Compare { field, sign, value } => {
                let path = self.path(field)?;
                let field = &path.object.fields[path.field];
                compare(field, self.value(record, &path).as_ref(), *sign, value)?
            }
            Condition::In { field, values } => {
                let path = self.path(field)?;
                let field = &path.object.fields[path.field];
                let found = self.value(record, &path);
                let mut is_in = false;
                for value in values {
                    is_in |= compare(field, found.as_ref(), Sign::Equal, value)?;
                }
                is_in
            }
            Condition::Like { field, pattern } => {
                let found = self.value(record, &self.path(field)?);
                found.is_some_and(|value| like(&value.to_cell(), pattern))
            }
        })
    }

    fn order(&self, a: &StoredRecord, b: &StoredRecord, order: &[(String, SortOrder)]) -> Ordering {
        let key = |record: &StoredRecord, name: &str| {
            self.path(name).ok().and_then(|path| self.value(record, &path))
        };
        let one = |(name, order): &(String, SortOrder)| {
            let found = by_value(key(a, name).as_ref(), key(b, name).as_ref());
            if *order == SortOrder::Down { found.reverse() } else { found }
        };
        order.iter().map(one).find(|found| found.is_ne()).unwrap_or(Ordering::Equal)
    }

    fn row(
        &self,
        record: &StoredRecord,
        fields: &[String],
        version: &str,
    ) -> Result<Json, RowError> {
        let mut row = Map::new();
        row.insert("attributes".to_owned(), attributes(self.object, record.id, version));
        for name in fields {
            let path = self.path(name)?;
            let value = self.value(record, &path).map_or(Json::Null, |value| value.to_json());
            let field = path.object.fields[path.field].name.clone();
            let Some(lookup) = path.lookup else {
                row.insert(field, value);
                continue;
            };
            let relationship = self.object.fields[lookup].lookup.as_ref().expect("it is a lookup");
            let Some(FieldValue::Text(id)) = &record.values[lookup] else {
                row.insert(relationship.relationship.clone(), Json::Null);
                continue;
            };
            let parent = row.entry(relationship.relationship.clone()).or_insert_with(|| {
                let id = Id::parse(id).expect("a lookup holds an id");
                json!({"attributes": attributes(path.object, id, version)})
            });
            parent[field] = value;
        }
        Ok(Json::Object(row))
    }
}

fn compare(
    field: &SchemaField,
    found: Option<&FieldValue>,
    sign: Sign,
    value: &Literal,
) -> Result<bool, RowError> {
    let wanted = match value {
        Literal::Null => None,
        Literal::Bool(flag) => Some(FieldValue::Bool(*flag)),
        Literal::Text(text) if text.is_empty() => None,
        Literal::Text(text) | Literal::Plain(text) => Some(wanted(field, text)?),
    };
    let equal = match (found, &wanted) {
        (None, None) => true,
        // Texts are compared case-insensitively, unless the field is case-sensitive.
        (Some(found), Some(wanted)) => found.index_key(field) == wanted.index_key(field),
        _ => false,
    };
    let order = by_value(found, wanted.as_ref());
    let both = found.is_some() && wanted.is_some();
    Ok(match sign {
        Sign::Equal => equal,
        Sign::NotEqual => !equal,
        Sign::Less => both && order.is_lt(),
        Sign::LessOrEqual => both && order.is_le(),
        Sign::More => both && order.is_gt(),
        Sign::MoreOrEqual => both && order.is_ge(),
    })
}

fn wanted(field: &SchemaField, text: &str) -> Result<FieldValue, RowError> {
    use crate::schema::FieldKind;
    let is_text = !matches!(
        field.kind,
        FieldKind::Boolean
            | FieldKind::Int
            | FieldKind::Double
            | FieldKind::Currency
            | FieldKind::Percent
            | FieldKind::Date
            | FieldKind::DateTime
            | FieldKind::Id
            | FieldKind::Lookup
    );
    if is_text {
        return Ok(FieldValue::Text(text.into()));
    }
    FieldValue::from_text(field, text).map_err(|_| {
        let message = format!(
            "value of filter criterion for field '{}' must be of type {}",
            field.name,
            field.kind.described()
        );
        RowError::new("INVALID_FIELD", message)
    })
}

fn by_value(a: Option<&FieldValue>, b: Option<&FieldValue>) -> Ordering {
    match (a, b) {
        (Some(FieldValue::Text(a)), Some(FieldValue::Text(b))) => a.cmp(b),
        (Some(FieldValue::Int(a)), Some(FieldValue::Int(b))) => a.cmp(b),
        (Some(FieldValue::Double(a)), Some(FieldValue::Double(b))) => a.total_cmp(b),
        (Some(FieldValue::Bool(a)), Some(FieldValue::Bool(b))) => a.cmp(b),
        // Nulls come first.
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Matches `%` with any text and `_` with one character; case-insensitive.
fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    // The position of the last `%`, and how much of the text it has matched.
    let (mut t, mut p, mut retry) = (0, 0, None);
    while t < text.len() {
        let escaped = pattern.get(p) == Some(&'\\');
        let wanted = pattern.get(p + usize::from(escaped));
        match wanted {
            Some('%') if !escaped => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == text[t] || (*c == '_' && !escaped) => {
                t += 1;
                p += 1 + usize::from(escaped);
            }
            _ => {
                let Some((at, taken)) = retry else { return false };
                retry = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p.min(pattern.len())..].iter().all(|c| *c == '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_knows_its_two_signs() {
        for (text, pattern, fits) in [
            ("Acme", "ac%", true),
            ("Acme", "%m_", true),
            ("Acme", "acm", false),
            ("a_b", "a\\_b", true),
            ("axb", "a\\_b", false),
            ("", "%", true),
            ("aaab", "%a%ab", true),
            ("x", "", false),
        ] {
            assert_eq!(like(text, pattern), fits, "{text} {pattern}");
        }
    }
}
