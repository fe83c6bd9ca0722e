//! From JSON to the bytes of a value.
//!
//! Invariant: nothing of the JSON is dropped or changed. A field that the schema does not have, a number that
//! would lose digits, and a text of the wrong form are a mismatch.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    AvroMismatch, AvroSchema, decimal, logical,
    schema::{LogicalType, NodeId, RecordField, SchemaNode},
};

/// The most values that are tried: a union tries its branches, and those may have unions again.
const STEPS_MAX: usize = 1_000_000;

type Written = Result<(), AvroMismatch>;

impl AvroSchema {
    /// Returns the bytes of a JSON text.
    pub(in crate::kafka) fn encode(&self, json: &str) -> Result<Vec<u8>, AvroMismatch> {
        let mut writer = ValueWriter {
            schema: self,
            bytes: Vec::with_capacity(json.len()),
            steps: 0,
            form: TextForm::Payload,
        };
        writer.any(self.root(), &JsonText::parse(json)?)?;
        Ok(writer.bytes)
    }
}

/// The form in which bytes stand in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextForm {
    /// Base64.
    Payload,
    /// The default of a schema: one character for each byte.
    Default,
}

/// A JSON value whose parts are still text, so that numbers keep their digits.
enum JsonText<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<&'a RawValue>),
    Object(BTreeMap<String, &'a RawValue>),
}

impl<'a> JsonText<'a> {
    fn parse(json: &'a str) -> Result<Self, AvroMismatch> {
        fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, AvroMismatch> {
            serde_json::from_str(json)
                .map_err(|error| AvroMismatch::new(format!("is not valid JSON: {error}")))
        }
        let json = json.trim_ascii();
        Ok(match json.as_bytes().first() {
            Some(b'{') => Self::Object(read(json)?),
            Some(b'[') => Self::Array(read(json)?),
            Some(b'"') => Self::String(Cow::Owned(read::<String>(json)?)),
            Some(b't' | b'f') => Self::Boolean(read(json)?),
            Some(b'n') => Self::Null,
            _ => Self::Number(json),
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a text",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

struct ValueWriter<'a> {
    schema: &'a AvroSchema,
    bytes: Vec<u8>,
    steps: usize,
    form: TextForm,
}

impl ValueWriter<'_> {
    fn any(&mut self, id: NodeId, json: &JsonText<'_>) -> Written {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(AvroMismatch::new("fits its unions in too many ways to try them all"));
        }
        let schema = self.schema;
        match (schema.node(id), json) {
            (SchemaNode::Union(branches), _) => self.union(branches, json),
            (SchemaNode::Record { fields, .. }, JsonText::Object(object)) => {
                self.record(fields, object)
            }
            (SchemaNode::Array(items), JsonText::Array(array)) => {
                self.block(array.len());
                for (at, item) in array.iter().enumerate() {
                    let item = JsonText::parse(item.get())?;
                    self.any(*items, &item).map_err(|error| error.within(at))?;
                }
                self.end(array.is_empty())
            }
            (SchemaNode::Map(values), JsonText::Object(object)) => {
                self.block(object.len());
                for (key, value) in object {
                    self.octets(key.as_bytes());
                    let value = JsonText::parse(value.get())?;
                    self.any(*values, &value).map_err(|error| error.within(key))?;
                }
                self.end(object.is_empty())
            }
            (SchemaNode::Logical { base, kind }, _) => self.logical(base, *kind, json),
            (node, _) => self.plain(node, json),
        }
    }

    fn plain(&mut self, node: &SchemaNode, json: &JsonText<'_>) -> Written {
        match (node, json) {
            (SchemaNode::Null, JsonText::Null) => {}
            (SchemaNode::Boolean, JsonText::Boolean(value)) => self.bytes.push((*value).into()),
            (SchemaNode::Int, JsonText::Number(text)) => {
                let number: i32 = text.parse().map_err(|_| unfit(text, "an int"))?;
                self.long(number.into());
            }
            (SchemaNode::Long, JsonText::Number(text)) => {
                self.long(text.parse().map_err(|_| unfit(text, "a long"))?);
            }
            (SchemaNode::Float, _) => {
                #[allow(clippy::cast_possible_truncation, reason = "the schema has the precision")]
                let number = number(json)? as f32;
                self.bytes.extend(number.to_le_bytes());
            }
            (SchemaNode::Double, _) => self.bytes.extend(number(json)?.to_le_bytes()),
            (SchemaNode::String, JsonText::String(text)) => self.octets(text.as_bytes()),
            (SchemaNode::Enum { symbols, name }, JsonText::String(text)) => {
                let index = symbols.iter().position(|symbol| symbol == text);
                let index = index.and_then(|index| i64::try_from(index).ok());
                self.long(index.ok_or_else(|| unfit(text, &format!("a symbol of `{name}`")))?);
            }
            (SchemaNode::Bytes, JsonText::String(text)) => {
                let bytes = self.decoded(text)?;
                self.octets(&bytes);
            }
            (SchemaNode::Fixed { size, .. }, JsonText::String(text)) => {
                let bytes = self.decoded(text)?;
                self.fixed(&bytes, *size)?;
            }
            (node, json) => return Err(other_kind(node, json)),
        }
        Ok(())
    }

    fn logical(&mut self, base: &SchemaNode, kind: LogicalType, json: &JsonText<'_>) -> Written {
        match (kind, base, json) {
            // The default of a schema has the form of the plain type.
            _ if self.form == TextForm::Default => return self.plain(base, json),
            (LogicalType::Decimal { precision, scale }, _, JsonText::String(Cow::Owned(text))) => {
                self.decimal(base, text, precision, scale)?
            }
            (LogicalType::Decimal { precision, scale }, _, JsonText::Number(text)) => {
                self.decimal(base, text, precision, scale)?;
            }
            (LogicalType::Uuid, _, JsonText::String(text)) => {
                let id = uuid::Uuid::parse_str(text).map_err(|_| unfit(text, "a UUID"))?;
                match base {
                    SchemaNode::Fixed { .. } => self.bytes.extend(id.as_bytes()),
                    _ => self.octets(text.as_bytes()),
                }
            }
            (LogicalType::Duration, _, JsonText::Object(object)) if object.len() == 3 => {
                for name in ["months", "days", "millis"] {
                    let part = object.get(name).and_then(|part| part.get().parse::<u32>().ok());
                    let part = part.ok_or_else(|| {
                        AvroMismatch::new("has no number of 32 bits here").within(name)
                    })?;
                    self.bytes.extend(part.to_le_bytes());
                }
            }
            (_, SchemaNode::Int | SchemaNode::Long, JsonText::String(text)) => {
                let number = logical::to_number(kind, text).map_err(AvroMismatch::new)?;
                return self.plain(base, &JsonText::Number(&number.to_string()));
            }
            (_, SchemaNode::Int | SchemaNode::Long, JsonText::Number(_)) => {
                return self.plain(base, json);
            }
            _ => return Err(other_kind(base, json)),
        }
        Ok(())
    }

    fn decimal(
        &mut self,
        base: &SchemaNode,
        text: &str,
        precision: usize,
        scale: usize,
    ) -> Written {
        let bytes = decimal::to_bytes(text, precision, scale).map_err(AvroMismatch::new)?;
        let SchemaNode::Fixed { size, .. } = base else {
            self.octets(&bytes);
            return Ok(());
        };
        let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
        let missing = size.saturating_sub(bytes.len());
        let padded: Vec<u8> = std::iter::repeat_n(sign, missing).chain(bytes).collect();
        self.fixed(&padded, *size)
    }

    fn record(&mut self, fields: &[RecordField], object: &BTreeMap<String, &RawValue>) -> Written {
        let unknown = object.keys().find(|name| !fields.iter().any(|field| field.name == **name));
        if let Some(name) = unknown {
            return Err(AvroMismatch::new("the schema has no such field").within(name));
        }
        for field in fields {
            let written = match (object.get(&field.name), &field.default) {
                (Some(value), _) => {
                    JsonText::parse(value.get()).and_then(|value| self.any(field.node, &value))
                }
                (None, Some(default)) => self.default(field.node, default),
                // Many writers of JSON leave out what is null.
                (None, None) if self.accepts_null(field.node) => {
                    self.any(field.node, &JsonText::Null)
                }
                (None, None) => Err(AvroMismatch::new("is missing, and has no default")),
            };
            written.map_err(|error| error.within(&field.name))?;
        }
        Ok(())
    }

    fn accepts_null(&self, id: NodeId) -> bool {
        let is_null = |id: &NodeId| *self.schema.node(*id) == SchemaNode::Null;
        match self.schema.node(id) {
            SchemaNode::Union(branches) => branches.iter().any(is_null),
            _ => is_null(&id),
        }
    }

    fn default(&mut self, id: NodeId, default: &str) -> Written {
        let form = std::mem::replace(&mut self.form, TextForm::Default);
        let written = JsonText::parse(default).and_then(|json| self.any(id, &json));
        self.form = form;
        written
    }

    /// Writes the first branch that fits. Bytes come last, because a plain text may look like Base64.
    fn union(&mut self, branches: &[NodeId], json: &JsonText<'_>) -> Written {
        if let JsonText::Object(object) = json
            && let Some((name, value)) = object.first_key_value().filter(|_| object.len() == 1)
            && let Some(at) = branches.iter().position(|id| self.schema.type_name(*id) == name)
            && let Ok(value) = JsonText::parse(value.get())
            && self.branch(branches, at, &value).is_ok()
        {
            return Ok(());
        }
        let is_bytes = |at: &usize| {
            matches!(self.schema.node(branches[*at]), SchemaNode::Bytes | SchemaNode::Fixed { .. })
        };
        let (last, first): (Vec<usize>, Vec<usize>) = (0..branches.len()).partition(is_bytes);
        let mut errors = Vec::new();
        for at in first.into_iter().chain(last) {
            match self.branch(branches, at, json) {
                Ok(()) => return Ok(()),
                Err(error) if self.steps > STEPS_MAX => return Err(error),
                Err(error) if self.schema.type_name(branches[at]) != "null" => errors.push(error),
                Err(_) => {}
            }
        }
        match <[AvroMismatch; 1]>::try_from(errors) {
            Ok([only]) => Err(only),
            Err(_) => {
                let names = branches.iter().map(|id| self.schema.type_name(*id));
                let names = names.collect::<Vec<_>>().join("`, `");
                Err(AvroMismatch::new(format!("{} fits none of `{names}`", json.kind())))
            }
        }
    }

    fn branch(&mut self, branches: &[NodeId], at: usize, json: &JsonText<'_>) -> Written {
        let before = self.bytes.len();
        self.long(i64::try_from(at).expect("a schema has fewer branches"));
        let written = self.any(branches[at], json);
        if written.is_err() {
            self.bytes.truncate(before);
        }
        written
    }

    fn decoded(&self, text: &str) -> Result<Vec<u8>, AvroMismatch> {
        if self.form == TextForm::Payload {
            return STANDARD.decode(text).map_err(|_| AvroMismatch::new("is not Base64"));
        }
        let byte = |c: char| u8::try_from(u32::from(c)).ok();
        let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
        bytes.ok_or_else(|| AvroMismatch::new("has a default with characters above U+00FF"))
    }

    fn fixed(&mut self, bytes: &[u8], size: usize) -> Written {
        if bytes.len() != size {
            let why = format!("has {} bytes, and the schema {size}", bytes.len());
            return Err(AvroMismatch::new(why));
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    fn octets(&mut self, bytes: &[u8]) {
        self.block(bytes.len());
        self.bytes.extend(bytes);
    }

    /// Writes a length, or the number of items in a block.
    fn block(&mut self, count: usize) {
        self.long(i64::try_from(count).expect("fewer than an address space has"));
    }

    /// Writes the end of an array or map; an empty one is only its end.
    fn end(&mut self, is_empty: bool) -> Written {
        if !is_empty {
            self.bytes.push(0);
        }
        Ok(())
    }

    fn long(&mut self, number: i64) {
        let mut bits = ((number << 1) ^ (number >> 63)).cast_unsigned();
        while bits > 0x7f {
            self.bytes.push(bits.to_le_bytes()[0] | 0x80);
            bits >>= 7;
        }
        self.bytes.push(bits.to_le_bytes()[0]);
    }
}

/// Returns a number that a double holds: whole ones must be exact.
fn number(json: &JsonText<'_>) -> Result<f64, AvroMismatch> {
    match json {
        JsonText::Number(text) => {
            let number: f64 = text.parse().map_err(|_| unfit(text, "a number"))?;
            let is_whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            if number.is_infinite() || (is_whole && format!("{number}") != *text) {
                return Err(unfit(text, "a floating-point number"));
            }
            Ok(number)
        }
        JsonText::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(unfit(text, "a floating-point number")),
        },
        json => Err(AvroMismatch::new(format!("is {}, and the schema has a number", json.kind()))),
    }
}

/// Returns the mismatch of a value; a long one is shortened.
fn unfit(text: &str, wanted: &str) -> AvroMismatch {
    const SHOWN_MAX: usize = 40;
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    AvroMismatch::new(format!("`{shown}` is not {wanted}"))
}

fn other_kind(node: &SchemaNode, json: &JsonText<'_>) -> AvroMismatch {
    AvroMismatch::new(format!("is {}, and the schema has `{}`", json.kind(), node.type_name()))
}
