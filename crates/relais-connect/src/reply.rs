//! The reply address that a message carries to a broker.
//!
//! Pure. A reply carries none: its header `reply-to` is the address that it is sent to.

use relais_core::{
    message::{Category, HEADER_REPLY_TO},
    outbox::OutboxRow,
};

/// Returns the header of the message; for a command without one, the address of its destination.
pub(crate) fn reply_to<'a>(row: &'a OutboxRow, of_destination: Option<&'a str>) -> Option<&'a str> {
    let own = row.headers.get(HEADER_REPLY_TO);
    match row.category {
        Category::Reply => None,
        Category::Command => own.or(of_destination),
        Category::Event => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    #[test]
    fn a_command_asks_for_a_reply_and_a_reply_does_not() {
        for (category, own, carried) in [
            (Category::Command, None, Some("replies")),
            (Category::Command, Some("mine"), Some("mine")),
            (Category::Event, None, None),
            (Category::Event, Some("mine"), Some("mine")),
            (Category::Reply, Some("mine"), None),
            (Category::Reply, None, None),
        ] {
            let mut row = OutboxRow { category, ..row("{}") };
            own.into_iter().for_each(|own| row.headers.set("Reply-To", own));
            assert_eq!(reply_to(&row, Some("replies")), carried, "{category:?} {own:?}");
        }
    }
}
