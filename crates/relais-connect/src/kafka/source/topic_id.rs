//! Which of several topics of one name is read: deleted and created again, a topic has another id.
//!
//! librdkafka 2.12 knows the id but has no function that tells it, goes on at the old offset when
//! it changes, and says so only in a debug line. That line comes through the same queue as the
//! records, before the first record of the new topic. So we read the line; a test on a real broker
//! watches that its words stay.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

/// The debug context of librdkafka that writes the line.
pub(super) const DEBUG_CONTEXT: &str = "metadata";

/// The topic and a number made of its new id, if the line says `Topic … changed id from … to …`.
/// Brokers before 2.8 have no ids and give `None`.
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
