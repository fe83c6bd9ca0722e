//! The columns of an upload.

use crate::{
    faults::IdOnUpsert,
    schema::{ID, Schema, SchemaObject},
    store::{
        Operation,
        change::{ChangeTarget, RowChange},
    },
    value::FieldValue,
};

use super::csv::{COLUMNS_MAX, CsvFile, HEADER_MAX, ROW_MAX, VALUE_MAX};

/// The columns, in the order of the file.
#[derive(Debug)]
pub(crate) struct ColumnPlan {
    pub(super) columns: Vec<PlannedColumn>,
    /// The column that identifies the record: the external id or the id.
    pub(super) key: Option<usize>,
}

#[derive(Debug)]
pub(super) struct PlannedColumn {
    target: ChangeTarget,
    /// Spelled differently from the org: its values are missing in the failed results.
    pub(super) misspelled: bool,
}

impl ColumnPlan {
    /// Parses the header; the error is the reason why the job fails.
    pub(super) fn new(
        schema: &Schema,
        object: &SchemaObject,
        operation: Operation,
        file: &CsvFile,
    ) -> Result<Self, String> {
        let header = file.header().map_err(|why| format!("ClientInputError : {why}"))?;
        if file.raw_header().chars().count() > HEADER_MAX || header.len() > COLUMNS_MAX {
            return Err("InvalidBatch : The header row is too long".to_owned());
        }
        let mut columns: Vec<PlannedColumn> = Vec::new();
        for name in &header {
            let column = column(schema, object, name)?;
            if columns.iter().any(|other| other.target == column.target) {
                return Err(format!("InvalidBatch : Duplicate field name found : {name}"));
            }
            columns.push(column);
        }
        let wanted = match operation {
            Operation::Upsert(field) => Some(field),
            Operation::Update | Operation::Delete => Some(ID),
            Operation::Insert => None,
        };
        let place = |field| columns.iter().position(|it| it.target == ChangeTarget::Field(field));
        if let Some(field) = wanted
            && place(field).is_none()
        {
            let name = &object.fields[field].name;
            return Err(format!("InvalidBatch : Field name not found : {name}"));
        }
        if operation == Operation::Delete && columns.len() > 1 {
            return Err("InvalidBatch : A delete has the column Id and no other".to_owned());
        }
        let key = wanted.or_else(|| object.key_field()).and_then(place);
        Ok(Self { columns, key })
    }

    /// Parses a row. Errors of the row are kept in the change.
    pub(super) fn change(
        &self,
        object: &SchemaObject,
        operation: Operation,
        id_on_upsert: IdOnUpsert,
        file: &CsvFile,
        row: usize,
    ) -> RowChange {
        let mut change = RowChange::default();
        let malformed = |why: &str| crate::row_error::RowError::new("CLIENTINPUTERROR", why);
        let cells = match file.row(row) {
            Ok(cells) => cells,
            Err(why) => {
                change.refuse(malformed(why));
                return change;
            }
        };
        if cells.len() != self.columns.len() {
            let (found, wanted) = (cells.len(), self.columns.len());
            let why = format!("The row has {found} columns, the header has {wanted}");
            change.refuse(malformed(&why));
            return change;
        }
        if file.raw_row(row).chars().count() > ROW_MAX {
            change.refuse(malformed("The row has more than 400000 characters"));
        }
        let by_key = matches!(operation, Operation::Upsert(field) if field != ID);
        for (column, cell) in self.columns.iter().zip(&cells) {
            match (column.target, cell.as_ref()) {
                (_, "") => {}
                (ChangeTarget::Field(ID), _) if by_key && id_on_upsert == IdOnUpsert::Ignore => {}
                (target, "#N/A") => change.set_null(target),
                (_, text) if text.encode_utf16().count() > VALUE_MAX => {
                    change.refuse(malformed("A value has more than 32000 characters"));
                }
                (target, text) => change.set_text(object, target, text),
            }
        }
        change
    }

    /// Returns the key of a row; empty if it has no such column.
    pub(super) fn key_of(&self, file: &CsvFile, row: usize) -> String {
        let cells = file.row(row).unwrap_or_default();
        self.key.and_then(|key| cells.get(key)).map(ToString::to_string).unwrap_or_default()
    }

    /// Returns a cell of a successful row, formatted by its type.
    pub(super) fn rendered(&self, object: &SchemaObject, column: usize, cell: &str) -> String {
        match self.columns[column].target {
            ChangeTarget::Field(field) if !cell.is_empty() && cell != "#N/A" => {
                let value = FieldValue::from_text(&object.fields[field], cell);
                let is_number = matches!(
                    value,
                    Ok(FieldValue::Double(_) | FieldValue::Int(_) | FieldValue::Bool(_))
                );
                value.ok().filter(|_| is_number).map_or_else(|| cell.to_owned(), |it| it.to_cell())
            }
            _ => cell.to_owned(),
        }
    }
}

fn column(schema: &Schema, object: &SchemaObject, name: &str) -> Result<PlannedColumn, String> {
    let unknown = || format!("InvalidBatch : Field name not found : {name}");
    if let Some(field) = object.field(name) {
        let misspelled = object.fields[field].name != name;
        return Ok(PlannedColumn { target: ChangeTarget::Field(field), misspelled });
    }
    let (path, parent_field) = name.split_once('.').ok_or_else(unknown)?;
    if let Some((_, relationship)) = path.split_once(':') {
        return Err(format!(
            "InvalidBatch : type is not needed for non polymorphic foreign key references: \
             {relationship}"
        ));
    }
    let (lookup, definition) = object
        .relationship(path)
        .ok_or_else(|| format!("InvalidBatch : Unable to find relationship: {path}"))?;
    let parent = &schema.objects[definition.to];
    let field = parent.field(parent_field).filter(|field| parent.fields[*field].is_key());
    let field = field.ok_or_else(unknown)?;
    let exact = format!("{}.{}", definition.relationship, parent.fields[field].name);
    Ok(PlannedColumn { target: ChangeTarget::Parent { lookup, field }, misspelled: exact != name })
}
