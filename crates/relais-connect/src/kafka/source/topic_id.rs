//! Detects that a topic was deleted and created again: it then has another id.
//!
//! librdkafka 2.12 knows the id but has no function for it. When the id changes, it continues at
//! the old offset and only writes a debug line. That line comes through the same queue as the
//! records, before the first record of the new topic. So we parse the line; a test with a real
//! broker checks its format.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

/// The debug context of librdkafka that writes the line.
pub(super) const DEBUG_CONTEXT: &str = "metadata";

/// Returns the topic and a number derived from its new id, if the line has the form `Topic …
/// changed id from … to …`. Brokers before 2.8 have no ids and give `None`.
pub(super) fn changed(line: &str) -> Option<(&str, i64)> {
    let (_, rest) = line.split_once("Topic ")?;
    let (topic, rest) = rest.split_once(" changed id from ")?;
    let (_, id) = rest.split_once(" to ")?;
    let bytes = STANDARD_NO_PAD.decode(id.trim()).ok()?;
    let number = i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    (number != 0).then_some((topic, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_gives_topic_and_id() {
        let line = "[thrd:main]: Topic a.b-c changed id from AAAAAAAAAAAAAAAAAAAAAA to \
                    LN4MaoYERsCDfWP5NQ6mVg";
        let (topic, id) = changed(line).unwrap();
        assert_eq!((topic, id), ("a.b-c", 0x2cde_0c6a_8604_46c0));
        let again = "Topic a.b-c changed id from LN4MaoYERsCDfWP5NQ6mVg to dnp6Moc+SuWIEgA7GUvyCw";
        assert_ne!(changed(again).unwrap().1, id);
    }

    #[test]
    fn other_lines_and_no_id_are_nothing() {
        for line in [
            "[thrd:main]: Topic a [0] Leader 1 Epoch 0",
            "Topic a changed id from LN4MaoYERsCDfWP5NQ6mVg to AAAAAAAAAAAAAAAAAAAAAA",
            "Topic a changed id from x to y",
            "",
        ] {
            assert_eq!(changed(line), None, "{line}");
        }
    }
}
