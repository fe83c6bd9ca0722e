//! Avro without files: one value, by the schema that it was written with, from and to JSON.
//!
//! Pure. A library is not used on purpose: those of Rust follow a record to any depth and allocate what it
//! claims to hold, so one record could end the process. Here depth, size and steps are bounded.

mod decimal;
mod decode;
mod encode;
mod logical;
mod schema;
#[cfg(test)]
mod tests;

pub(super) use schema::AvroSchema;

/// The reason why a value does not fit its schema, with the place in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AvroMismatch {
    /// The names from the outside to the place, the innermost first.
    place: Vec<String>,
    why: String,
}

impl AvroMismatch {
    fn new(why: impl Into<String>) -> Self {
        Self { place: Vec::new(), why: why.into() }
    }

    /// Adds the field or item that contains the place.
    fn within(mut self, name: impl ToString) -> Self {
        self.place.push(name.to_string());
        self
    }
}

impl std::fmt::Display for AvroMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.place.is_empty() {
            return f.write_str(&self.why);
        }
        f.write_str("at ")?;
        self.place.iter().rev().try_for_each(|name| write!(f, "/{name}"))?;
        write!(f, ": {}", self.why)
    }
}
