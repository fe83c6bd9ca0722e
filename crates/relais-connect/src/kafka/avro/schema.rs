//! A schema as a list of nodes, each of which names others by their number.
//!
//! Invariant: a union contains no union, and a logical type only a plain type. So the depth of a value is the
//! depth of its records, arrays and maps. Names and defaults are checked by the registry, not here.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The number of a node in its schema.
pub(super) type NodeId = usize;

/// A schema with all types that it names.
#[derive(Debug)]
pub(in crate::kafka) struct AvroSchema {
    nodes: Vec<SchemaNode>,
    root: NodeId,
}

/// A type of a schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SchemaNode {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed { name: String, size: usize },
    Enum { name: String, symbols: Vec<String> },
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record { name: String, fields: Vec<RecordField> },
    Logical { base: Box<SchemaNode>, kind: LogicalType },
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordField {
    pub(super) name: String,
    pub(super) node: NodeId,
    /// JSON, as the schema has it.
    pub(super) default: Option<String>,
}

/// A logical type that relais maps. A schema with another one is read by its plain type, as Avro requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogicalType {
    Decimal { precision: usize, scale: usize },
    Uuid,
    Date,
    Time(TimeUnit),
    Timestamp(TimeUnit),
    LocalTimestamp(TimeUnit),
    Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Millis,
    Micros,
    Nanos,
}

impl TimeUnit {
    /// Returns the nanoseconds of one unit.
    pub(super) fn nanos(self) -> i128 {
        match self {
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }
}

impl AvroSchema {
    /// Parses a schema; `references` are the schemas that it names, each after those that it names itself.
    pub(in crate::kafka) fn parse(text: &str, references: &[String]) -> Result<Self, String> {
        let mut parser = SchemaParser::default();
        for reference in references {
            parser.text(reference)?;
        }
        let root = parser.text(text)?;
        Ok(Self { nodes: parser.nodes, root })
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    pub(super) fn node(&self, id: NodeId) -> &SchemaNode {
        &self.nodes[id]
    }

    /// Returns the name of a type, as Avro's own JSON names the branch of a union.
    pub(super) fn type_name(&self, id: NodeId) -> &str {
        self.node(id).type_name()
    }
}

impl SchemaNode {
    pub(super) fn type_name(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Fixed { name, .. } | Self::Enum { name, .. } | Self::Record { name, .. } => name,
            Self::Logical { base, .. } => base.type_name(),
        }
    }
}

#[derive(Default)]
struct SchemaParser {
    nodes: Vec<SchemaNode>,
    /// Types by their full name.
    named: HashMap<String, NodeId>,
}

impl SchemaParser {
    fn text(&mut self, text: &str) -> Result<NodeId, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        self.any(&value, "")
    }

    fn add(&mut self, node: SchemaNode) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn any(&mut self, value: &Value, namespace: &str) -> Result<NodeId, String> {
        match value {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(object) => self.object(object, namespace),
            _ => Err(format!("has {value} where a type is expected")),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<NodeId, String> {
        if let Some(plain) = plain(name) {
            return Ok(self.add(plain));
        }
        let found = self.named.get(&full_name(name, namespace)).or_else(|| self.named.get(name));
        found.copied().ok_or_else(|| format!("names the type `{name}`, which it does not define"))
    }

    fn union(&mut self, branches: &[Value], namespace: &str) -> Result<NodeId, String> {
        let mut ids = Vec::with_capacity(branches.len());
        for branch in branches {
            let id = self.any(branch, namespace)?;
            if matches!(self.nodes[id], SchemaNode::Union(_)) {
                return Err("has a union directly in a union".to_owned());
            }
            ids.push(id);
        }
        Ok(self.add(SchemaNode::Union(ids)))
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<NodeId, String> {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(nested) => return self.any(nested, namespace),
            None => return Err("has an object without `type`".to_owned()),
        };
        match kind {
            "array" => {
                let items = self.part(object, "items", namespace)?;
                Ok(self.add(SchemaNode::Array(items)))
            }
            "map" => {
                let values = self.part(object, "values", namespace)?;
                Ok(self.add(SchemaNode::Map(values)))
            }
            "record" | "error" => self.record(object, namespace),
            "enum" => {
                let name = own_name(object, namespace)?;
                let symbols = list(object, "symbols")?.iter().filter_map(Value::as_str);
                let symbols = symbols.map(str::to_owned).collect();
                let id = self.add(SchemaNode::Enum { name: name.clone(), symbols });
                self.named.insert(name, id);
                Ok(id)
            }
            "fixed" => {
                let name = own_name(object, namespace)?;
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| format!("has no size for `{name}`"))?;
                let id = self.add(logical(SchemaNode::Fixed { name: name.clone(), size }, object));
                self.named.insert(name, id);
                Ok(id)
            }
            name => match plain(name) {
                Some(plain) => Ok(self.add(logical(plain, object))),
                None => self.by_name(name, namespace),
            },
        }
    }

    fn record(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<NodeId, String> {
        let name = own_name(object, namespace)?;
        // A record may name itself: its number is known before its fields are.
        let id = self.add(SchemaNode::Null);
        self.named.insert(name.clone(), id);
        let inner = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let mut fields = Vec::new();
        for field in list(object, "fields")? {
            let Some((field, text)) =
                field.as_object().and_then(|field| Some((field, field.get("name")?.as_str()?)))
            else {
                return Err(format!("has a field without a name in `{name}`"));
            };
            let node = self.part(field, "type", &inner)?;
            let default = field.get("default").map(ToString::to_string);
            fields.push(RecordField { name: text.to_owned(), node, default });
        }
        self.nodes[id] = SchemaNode::Record { name, fields };
        Ok(id)
    }

    fn part(
        &mut self,
        object: &Map<String, Value>,
        key: &str,
        namespace: &str,
    ) -> Result<NodeId, String> {
        let part = object.get(key).ok_or_else(|| format!("has an object without `{key}`"))?;
        self.any(part, namespace)
    }
}

fn plain(name: &str) -> Option<SchemaNode> {
    Some(match name {
        "null" => SchemaNode::Null,
        "boolean" => SchemaNode::Boolean,
        "int" => SchemaNode::Int,
        "long" => SchemaNode::Long,
        "float" => SchemaNode::Float,
        "double" => SchemaNode::Double,
        "bytes" => SchemaNode::Bytes,
        "string" => SchemaNode::String,
        _ => return None,
    })
}

/// Returns the node with its logical type, if it has one that fits it.
fn logical(node: SchemaNode, object: &Map<String, Value>) -> SchemaNode {
    use LogicalType::{LocalTimestamp, Time, Timestamp};
    use TimeUnit::{Micros, Millis, Nanos};
    let number = |key: &str| {
        object.get(key).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok())
    };
    let name = object.get("logicalType").and_then(Value::as_str).unwrap_or_default();
    let kind = match (name, &node) {
        ("decimal", SchemaNode::Bytes | SchemaNode::Fixed { .. }) => {
            let scale = number("scale").unwrap_or_default();
            let fits = |precision: &usize| *precision >= scale.max(1);
            number("precision")
                .filter(fits)
                .map(|precision| LogicalType::Decimal { precision, scale })
        }
        ("uuid", SchemaNode::String | SchemaNode::Fixed { size: 16, .. }) => {
            Some(LogicalType::Uuid)
        }
        ("duration", SchemaNode::Fixed { size: 12, .. }) => Some(LogicalType::Duration),
        ("date", SchemaNode::Int) => Some(LogicalType::Date),
        ("time-millis", SchemaNode::Int) => Some(Time(Millis)),
        ("time-micros", SchemaNode::Long) => Some(Time(Micros)),
        ("timestamp-millis", SchemaNode::Long) => Some(Timestamp(Millis)),
        ("timestamp-micros", SchemaNode::Long) => Some(Timestamp(Micros)),
        ("timestamp-nanos", SchemaNode::Long) => Some(Timestamp(Nanos)),
        ("local-timestamp-millis", SchemaNode::Long) => Some(LocalTimestamp(Millis)),
        ("local-timestamp-micros", SchemaNode::Long) => Some(LocalTimestamp(Micros)),
        ("local-timestamp-nanos", SchemaNode::Long) => Some(LocalTimestamp(Nanos)),
        _ => None,
    };
    match kind {
        Some(kind) => SchemaNode::Logical { base: Box::new(node), kind },
        None => node,
    }
}

fn own_name(object: &Map<String, Value>, namespace: &str) -> Result<String, String> {
    let name = object.get("name").and_then(Value::as_str).ok_or("has a type without a name")?;
    let own = object.get("namespace").and_then(Value::as_str);
    Ok(full_name(name, own.unwrap_or(namespace)))
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        return name.to_owned();
    }
    format!("{namespace}.{name}")
}

fn list<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a Vec<Value>, String> {
    object.get(key).and_then(Value::as_array).ok_or_else(|| format!("has a type without `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_its_namespace_in_itself_and_in_references() {
        let money = r#"{"type":"fixed","name":"Money","namespace":"bank","size":8}"#.to_owned();
        let schema = AvroSchema::parse(
            r#"{"type":"record","name":"shop.Node","fields":[
                {"name":"next","type":["null","Node"]},
                {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A"]}},
                {"name":"again","type":"shop.Kind"},
                {"name":"price","type":"bank.Money"}]}"#,
            &[money],
        )
        .unwrap();
        let SchemaNode::Record { name, fields } = schema.node(schema.root()) else {
            panic!("{schema:?}")
        };
        assert_eq!(name, "shop.Node");
        let SchemaNode::Union(branches) = schema.node(fields[0].node) else { panic!("{schema:?}") };
        assert_eq!(branches[1], schema.root());
        assert_eq!(schema.type_name(fields[2].node), "shop.Kind");
        assert_eq!(schema.type_name(fields[3].node), "bank.Money");
    }

    #[test]
    fn a_logical_type_that_does_not_fit_is_left_out() {
        let kind = |text: &str| {
            let schema = AvroSchema::parse(text, &[]).unwrap();
            schema.node(schema.root()).clone()
        };
        let date = kind(r#"{"type":"int","logicalType":"date"}"#);
        assert!(matches!(date, SchemaNode::Logical { kind: LogicalType::Date, .. }));
        assert_eq!(kind(r#"{"type":"string","logicalType":"date"}"#), SchemaNode::String);
        assert_eq!(kind(r#"{"type":"bytes","logicalType":"decimal"}"#), SchemaNode::Bytes);
        assert_eq!(kind(r#"{"type":"string","logicalType":"of-another-one"}"#), SchemaNode::String);
    }

    #[test]
    fn what_is_no_schema_says_why() {
        for (text, why) in [
            ("{", "is not JSON"),
            ("\"shop.Order\"", "`shop.Order`, which it does not define"),
            ("[\"null\",[\"int\"]]", "a union directly in a union"),
            ("7", "where a type is expected"),
            (r#"{"type":"record","name":"R"}"#, "without `fields`"),
        ] {
            let error = AvroSchema::parse(text, &[]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
