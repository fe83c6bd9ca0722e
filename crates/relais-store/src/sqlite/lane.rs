//! The lane of a key, without the expression of the column `lane`: that costs a settlement two of its seven
//! microseconds.

use rusqlite::{Connection, functions::FunctionFlags, types::ValueRef};

use super::row::limit;

/// Gives a connection the function `ascii_lane(key)`: NULL for a key with other characters.
pub(super) fn register(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    db.create_scalar_function("ascii_lane", 1, flags, |call| {
        Ok(match call.get_raw(0) {
            ValueRef::Text(key) => lane_of(key),
            _ => None,
        })
    })
}

/// Returns the lane of a key of ASCII characters, as the database computes it.
pub(super) fn ascii_lane(key: &str) -> Option<i16> {
    lane_of(key.as_bytes())
}

fn lane_of(bytes: &[u8]) -> Option<i16> {
    if bytes.iter().any(|byte| !byte.is_ascii() || *byte == 0) {
        return None;
    }
    let length = bytes.len();
    let from_end = |n: usize| length.checked_sub(n).map_or(0, |at| i64::from(bytes[at]));
    let first = bytes.first().copied().map_or(0, i64::from);
    let sum = from_end(1)
        + 7 * from_end(2)
        + 31 * from_end(3)
        + 61 * from_end(4)
        + 13 * first
        + 3 * limit(length);
    i16::try_from(sum % 64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_of_an_ascii_key_is_that_of_the_database() {
        let db = Connection::open_in_memory().unwrap();
        register(&db).unwrap();
        for script in super::super::SCRIPTS {
            db.execute_batch(script.sql).unwrap();
        }
        let keys = ["", "a", "ab", "abc", "abcd", "order-00042", " ~\t", "A key of more words"];
        for key in keys {
            let insert = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, \
                          destination, payload, msg_key) VALUES ('O', 'o', 'E', 'd', '{}', ?1)";
            db.execute(insert, [key]).unwrap();
            let id = db.last_insert_rowid();
            let sql = include_str!("sql/lane_of_row.sql");
            let lane: i16 = db.query_row(sql, [id], |row| row.get(0)).unwrap();
            assert_eq!(ascii_lane(key), Some(lane), "{key:?}");
            let sql = "SELECT ascii_lane(msg_key) FROM relais_outbox WHERE id = ?1";
            let lane_by_sql: Option<i16> = db.query_row(sql, [id], |row| row.get(0)).unwrap();
            assert_eq!(lane_by_sql, Some(lane), "{key:?}");
        }
        assert_eq!((ascii_lane("ä"), ascii_lane("a\0b")), (None, None));
    }
}
