//! Values in both directions. `golden.json` was written with Apache Avro's implementation for Python (1.12.2).

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;

#[derive(Deserialize)]
struct GoldenValue {
    schema: Box<RawValue>,
    hex: String,
    json: Box<RawValue>,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn schema(text: &str) -> AvroSchema {
    AvroSchema::parse(text, &[]).unwrap()
}

fn why(result: Result<impl std::fmt::Debug, AvroMismatch>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn values_are_those_of_apache_avro() {
    let all: Vec<GoldenValue> = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert!(all.len() > 30);
    for GoldenValue { schema: text, hex, json } in all {
        let (schema, json) = (schema(text.get()), json.get());
        assert_eq!(schema.decode(&bytes(&hex)).as_deref(), Ok(json), "{}", text.get());
        assert_eq!(schema.encode(json).unwrap(), bytes(&hex), "{}", text.get());
    }
}

#[test]
fn blocks_with_their_size_are_read() {
    // A writer may write a negative count and the size of the block, and any number of blocks.
    let list = schema(r#"{"type":"array","items":"long"}"#);
    assert_eq!(list.decode(&[0x03, 0x04, 0x06, 0x36, 0x02, 0x02, 0x00]).unwrap(), "[3,27,1]");
}

#[test]
fn numbers_that_json_does_not_have_are_texts() {
    let double = schema("\"double\"");
    for (number, json) in [
        (f64::NAN, "\"NaN\""),
        (f64::INFINITY, "\"Infinity\""),
        (f64::NEG_INFINITY, "\"-Infinity\""),
        (1e300, "1e+300"),
    ] {
        assert_eq!(double.decode(&number.to_le_bytes()).unwrap(), json);
        assert_eq!(double.encode(json).unwrap().len(), 8);
    }
    let float = schema("\"float\"");
    assert_eq!(float.decode(&0.1_f32.to_le_bytes()).unwrap(), "0.1");
}

#[test]
fn bytes_that_do_not_fit_name_the_place() {
    let order = schema(
        r#"{"type":"record","name":"R","fields":[{"name":"id","type":"int"},
            {"name":"lines","type":{"type":"array","items":["null","string"]}}]}"#,
    );
    for (bytes, expected) in [
        (&[][..], "at /id: the bytes end"),
        (&[0xff; 11], "at /id: has a number of more than 64 bits"),
        (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], "at /id: has 17179869184 where an int"),
        (&[0x02, 0x02, 0x08], "at /lines/0: has no branch 4"),
        (&[0x02, 0x02, 0x02, 0x01], "at /lines/0: has a length of -1"),
        (&[0x02, 0x02, 0x02, 0x02, 0xff], "at /lines/0: has a text that is not UTF-8"),
        (&[0x02, 0x00, 0x00], "1 bytes follow the value"),
    ] {
        let error = why(order.decode(bytes));
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_value_cannot_exhaust_stack_or_memory() {
    let list =
        schema(r#"{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}"#);
    let deep = why(list.decode(&[0x02; 1_000_000]));
    assert!(deep.contains("deeper than 128"), "{deep:.200}");
    assert!(list.decode(&[&[0x02; 100][..], &[0]].concat()).is_ok());
    let endless = schema(r#"{"type":"record","name":"E","fields":[{"name":"e","type":"E"}]}"#);
    assert!(why(endless.decode(&[])).contains("deeper than 128"));
    // Ten bytes claim 2^62 items without a byte each.
    let nulls = schema(r#"{"type":"array","items":"null"}"#);
    let claim = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x00];
    assert!(why(nulls.decode(&claim)).contains("longer than"));
}

#[test]
fn a_payload_that_does_not_fit_names_the_place() {
    let order = schema(
        r#"{"type":"record","name":"R","fields":[{"name":"id","type":"int"},
            {"name":"price","type":["null",{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}]},
            {"name":"kind","type":{"type":"enum","name":"K","symbols":["A"]}}]}"#,
    );
    for (json, expected) in [
        ("{", "is not valid JSON"),
        ("[]", "is an array, and the schema has `R`"),
        (r#"{"id":1}"#, "at /kind: is missing, and has no default"),
        (r#"{"id":1,"kind":"A","more":2}"#, "at /more: the schema has no such field"),
        (r#"{"id":2147483648,"kind":"A"}"#, "at /id: `2147483648` is not an int"),
        (r#"{"id":1.5,"kind":"A"}"#, "at /id: `1.5` is not an int"),
        (r#"{"id":1,"price":"1.234","kind":"A"}"#, "at /price: has more than 2 digits"),
        (r#"{"id":1,"price":12345,"kind":"A"}"#, "at /price: has more than 4 digits"),
        (r#"{"id":1,"kind":"B"}"#, "at /kind: `B` is not a symbol of `K`"),
    ] {
        let error = why(order.encode(json));
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(order.encode(r#"{"kind":"A","id":1}"#).unwrap(), [2, 0, 0]);
}

#[test]
fn defaults_are_those_of_the_schema() {
    let record = schema(
        r#"{"type":"record","name":"R","fields":[
            {"name":"b","type":"bytes","default":"\u00ff"},
            {"name":"n","type":["int","null"],"default":7},
            {"name":"d","type":{"type":"int","logicalType":"date"},"default":1},
            {"name":"l","type":{"type":"array","items":"string"},"default":[]}]}"#,
    );
    let value = record.encode("{}").unwrap();
    assert_eq!(record.decode(&value).unwrap(), r#"{"b":"/w==","n":7,"d":"1970-01-02","l":[]}"#);
}

#[test]
fn a_union_takes_the_first_branch_that_fits() {
    let union = schema(
        r#"["null","bytes","int","long","double","string",
            {"type":"record","name":"A","fields":[{"name":"a","type":"int"}]},
            {"type":"record","name":"s.B","fields":[{"name":"a","type":"int"}]}]"#,
    );
    for (json, branch) in [
        ("null", 0),
        ("5", 2),
        ("3000000000", 3),
        ("0.5", 4),
        // Base64 too, and more likely a text.
        ("\"AAAA\"", 5),
        (r#"{"bytes":"AAAA"}"#, 1),
        (r#"{"a":1}"#, 6),
        (r#"{"s.B":{"a":1}}"#, 7),
    ] {
        assert_eq!(union.encode(json).unwrap()[0], branch * 2, "{json}");
    }
    assert!(why(union.encode("true")).contains("a boolean fits none of `null`, `bytes`"));
}

#[test]
fn a_union_that_fits_in_too_many_ways_ends() {
    let both = schema(
        r#"{"type":"record","name":"A","fields":[{"name":"x","type":["null","A",
            {"type":"record","name":"B","fields":[{"name":"x","type":["null","A","B"]}]}]}]}"#,
    );
    let json = r#"{"x":"#.repeat(60) + "1" + &"}".repeat(60);
    assert!(why(both.encode(&json)).contains("too many ways"));
}

proptest! {
    #[test]
    fn any_bytes_end_in_json_or_a_mismatch(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let schema = schema(
            r#"{"type":"record","name":"R","fields":[
                {"name":"u","type":["null","R","long","string",{"type":"map","values":"bytes"}]},
                {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}},
                {"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
                {"name":"f","type":{"type":"array","items":["float","double","null"]}}]}"#,
        );
        if let Ok(json) = schema.decode(&input) {
            relais_core::json::check(json.as_bytes()).unwrap();
        }
    }

    #[test]
    fn what_is_written_is_read(
        id: i64, text: String, flag: bool, number in -1e15..1e15_f64, items: Vec<Option<i32>>,
    ) {
        let schema = schema(
            r#"{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
                {"name":"text","type":"string"},{"name":"flag","type":"boolean"},
                {"name":"number","type":"double"},
                {"name":"items","type":{"type":"array","items":["null","int"]}}]}"#,
        );
        let json = serde_json::json!(
            {"id": id, "text": text, "flag": flag, "number": number, "items": items}
        );
        let read = schema.decode(&schema.encode(&json.to_string()).unwrap()).unwrap();
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&read).unwrap(), json);
    }
}
