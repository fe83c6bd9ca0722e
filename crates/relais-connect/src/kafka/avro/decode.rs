//! From the bytes of a value to JSON.
//!
//! Invariant: any bytes end in JSON that `relais_core::json` accepts or in a mismatch, in bounded memory and depth.

use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::json::DEPTH_MAX;
use serde::Serialize;

use super::{
    AvroMismatch, AvroSchema, decimal, logical,
    schema::{LogicalType, NodeId, RecordField, SchemaNode},
};

/// The longest JSON: a few bytes may stand for any number of empty items.
const JSON_MAX: usize = 64 << 20;

type Read<T> = Result<T, AvroMismatch>;

impl AvroSchema {
    /// Returns the value as JSON. `bytes` must be exactly one value.
    pub(in crate::kafka) fn decode(&self, bytes: &[u8]) -> Result<String, AvroMismatch> {
        let json = String::with_capacity(bytes.len().saturating_mul(2).min(JSON_MAX));
        let mut reader = ValueReader { schema: self, rest: bytes, json, depth: 0 };
        reader.any(self.root())?;
        match reader.rest.len() {
            0 => Ok(reader.json),
            more => Err(AvroMismatch::new(format!("{more} bytes follow the value"))),
        }
    }
}

struct ValueReader<'a> {
    schema: &'a AvroSchema,
    rest: &'a [u8],
    json: String,
    depth: usize,
}

impl<'a> ValueReader<'a> {
    fn any(&mut self, id: NodeId) -> Read<()> {
        if self.json.len() > JSON_MAX {
            return Err(AvroMismatch::new(format!("is longer than {JSON_MAX} bytes as JSON")));
        }
        let schema = self.schema;
        match schema.node(id) {
            SchemaNode::Array(items) => self.nested(|reader| reader.array(*items)),
            SchemaNode::Map(values) => self.nested(|reader| reader.map(*values)),
            SchemaNode::Record { fields, .. } => self.nested(|reader| reader.record(fields)),
            SchemaNode::Union(branches) => {
                let index = self.long()?;
                let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
                let branch = branch.ok_or_else(|| {
                    AvroMismatch::new(format!("has no branch {index} in its union"))
                })?;
                self.any(*branch)
            }
            SchemaNode::Logical { base, kind } => self.logical(base, *kind),
            node => self.plain(node),
        }
    }

    fn plain(&mut self, node: &SchemaNode) -> Read<()> {
        match node {
            SchemaNode::Null => self.json.push_str("null"),
            SchemaNode::Boolean => match self.take(1)? {
                [0] => self.json.push_str("false"),
                [1] => self.json.push_str("true"),
                other => return Err(AvroMismatch::new(format!("has a boolean {other:?}"))),
            },
            SchemaNode::Int => {
                let number = self.int()?;
                self.write(&number);
            }
            SchemaNode::Long => {
                let number = self.long()?;
                self.write(&number);
            }
            SchemaNode::Float => {
                let number = f32::from_le_bytes(self.array_of()?);
                match special(number.into()) {
                    Some(name) => self.write(name),
                    None => self.write(&number),
                }
            }
            SchemaNode::Double => {
                let number = f64::from_le_bytes(self.array_of()?);
                match special(number) {
                    Some(name) => self.write(name),
                    None => self.write(&number),
                }
            }
            SchemaNode::String => {
                let text = self.string()?;
                self.write(text);
            }
            SchemaNode::Enum { symbols, .. } => {
                let index = self.int()?;
                let symbol = usize::try_from(index).ok().and_then(|index| symbols.get(index));
                match symbol {
                    Some(symbol) => self.write(symbol),
                    None => return Err(AvroMismatch::new(format!("has no symbol {index}"))),
                }
            }
            node => {
                let bytes = self.octets(node)?;
                self.write(&STANDARD.encode(bytes));
            }
        }
        Ok(())
    }

    fn logical(&mut self, base: &SchemaNode, kind: LogicalType) -> Read<()> {
        match (kind, base) {
            (LogicalType::Decimal { scale, .. }, _) => {
                let text = decimal::to_text(self.octets(base)?, scale);
                self.write(&text.map_err(AvroMismatch::new)?);
            }
            (LogicalType::Uuid, SchemaNode::Fixed { .. }) => {
                let id = uuid::Uuid::from_bytes(self.array_of()?);
                self.write(&id.to_string());
            }
            (LogicalType::Duration, _) => {
                let [months, days, millis] =
                    [self.array_of()?, self.array_of()?, self.array_of()?].map(u32::from_le_bytes);
                let text = format!(r#"{{"months":{months},"days":{days},"millis":{millis}}}"#);
                self.json.push_str(&text);
            }
            (_, SchemaNode::Int | SchemaNode::Long) => {
                let number = match base {
                    SchemaNode::Int => self.int()?.into(),
                    _ => self.long()?,
                };
                match logical::to_text(kind, number) {
                    Some(text) => self.write(&text),
                    None => self.write(&number),
                }
            }
            (_, base) => self.plain(base)?,
        }
        Ok(())
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Read<()>) -> Read<()> {
        if self.depth == DEPTH_MAX {
            return Err(AvroMismatch::new(format!("is nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn record(&mut self, fields: &[RecordField]) -> Read<()> {
        self.json.push('{');
        for (at, field) in fields.iter().enumerate() {
            self.separate(at == 0);
            self.write(&field.name);
            self.json.push(':');
            self.any(field.node).map_err(|error| error.within(&field.name))?;
        }
        self.json.push('}');
        Ok(())
    }

    fn array(&mut self, items: NodeId) -> Read<()> {
        self.json.push('[');
        let mut at = 0_usize;
        while let Some(count) = self.block()? {
            for _ in 0..count {
                self.separate(at == 0);
                self.any(items).map_err(|error| error.within(at))?;
                at += 1;
            }
        }
        self.json.push(']');
        Ok(())
    }

    fn map(&mut self, values: NodeId) -> Read<()> {
        self.json.push('{');
        let mut first = true;
        while let Some(count) = self.block()? {
            for _ in 0..count {
                self.separate(std::mem::take(&mut first));
                let key = self.string()?;
                self.write(key);
                self.json.push(':');
                self.any(values).map_err(|error| error.within(key))?;
            }
        }
        self.json.push('}');
        Ok(())
    }

    /// Returns the number of items in the next block; `None` at the end.
    fn block(&mut self) -> Read<Option<u64>> {
        let count = self.long()?;
        if count < 0 {
            // The size of the block in bytes, for readers that skip it.
            self.long()?;
        }
        Ok(Some(count.unsigned_abs()).filter(|count| *count > 0))
    }

    fn separate(&mut self, is_first: bool) {
        if !is_first {
            self.json.push(',');
        }
    }

    fn write<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.json.push_str(&serde_json::to_string(value).expect("a text or a number is JSON"));
    }

    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(AvroMismatch::new("the bytes end before the value does"));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array_of<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    fn octets(&mut self, node: &SchemaNode) -> Read<&'a [u8]> {
        match node {
            SchemaNode::Fixed { size, .. } => self.take(*size),
            _ => {
                let size = self.long()?;
                let size = usize::try_from(size)
                    .map_err(|_| AvroMismatch::new(format!("has a length of {size} bytes")))?;
                self.take(size)
            }
        }
    }

    fn string(&mut self) -> Read<&'a str> {
        let bytes = self.octets(&SchemaNode::String)?;
        std::str::from_utf8(bytes).map_err(|_| AvroMismatch::new("has a text that is not UTF-8"))
    }

    fn int(&mut self) -> Read<i32> {
        let number = self.long()?;
        i32::try_from(number)
            .map_err(|_| AvroMismatch::new(format!("has {number} where an int is expected")))
    }

    /// Reads a number of up to ten groups of seven bits, the lowest first; the sign is its lowest bit.
    fn long(&mut self) -> Read<i64> {
        let mut bits = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array_of()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                break;
            }
            bits |= group << shift;
            if byte & 0x80 == 0 {
                let magnitude = i64::try_from(bits >> 1).expect("63 bits");
                return Ok(if bits & 1 == 0 { magnitude } else { !magnitude });
            }
        }
        Err(AvroMismatch::new("has a number of more than 64 bits"))
    }
}

/// Returns the name of a number that JSON does not have.
pub(super) fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}
