//! Privileges in the database, as statements that an operator runs.
//!
//! Invariant: `roles.sql` is the only list of rights that operators run. The tests connect as its roles, so
//! a statement that needs more fails there.

use relais_core::store::StoreError;

/// Longest name that still leaves room for what is put behind it.
const NAME_MAX: usize = 48;

/// Statements that make the roles `<prefix>_owner`, `_runtime`, `_producer`, `_consumer`, `_publisher` and
/// `_reader`, and grant them what they need in `schema`. To be run before the first migration,
/// and again after each.
pub fn roles_sql(prefix: &str, schema: &str) -> Result<String, StoreError> {
    for name in [prefix, schema] {
        refuse_odd(name)?;
    }
    let mut sql = include_str!("roles.sql").replace(":schema", schema);
    for role in ["owner", "runtime", "producer", "consumer", "publisher", "reader"] {
        sql = sql.replace(&format!(":{role}"), &format!("{prefix}_{role}"));
    }
    Ok(sql)
}

/// Names are put into the text of statements: nothing but letters, digits and `_`.
fn refuse_odd(name: &str) -> Result<(), StoreError> {
    let sound = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts && name.len() <= NAME_MAX && name.chars().all(sound) {
        return Ok(());
    }
    Err(StoreError::invalid(format!(
        "`{}` cannot be used as a name; take lower-case letters, digits and _, at most {NAME_MAX}, \
         not beginning with a digit",
        name.escape_debug()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_in_and_nothing_is_left_to_fill_in() {
        let sql = roles_sql("shop", "messages").unwrap();
        assert!(sql.contains(r#"GRANT USAGE, CREATE ON SCHEMA "messages" TO "shop_owner";"#));
        assert!(sql.contains("('shop_producer', 'relais_outbox',"));
        assert!(
            !sql.contains(":s")
                && !sql.contains(":r")
                && !sql.contains(":o")
                && !sql.contains(":p")
        );
    }

    #[test]
    fn names_that_are_more_than_a_name_are_refused() {
        let long = "x".repeat(NAME_MAX + 1);
        for odd in ["", "Shop", "1shop", "a-b", "a b", "a\"b", "a';--", "é", &long] {
            for (prefix, schema) in [(odd, "relais"), ("relais", odd)] {
                let refused = roles_sql(prefix, schema);
                assert!(matches!(refused, Err(StoreError::Invalid(_))), "{odd}: {refused:?}");
            }
        }
        roles_sql(&long[1..], "_x1").unwrap();
    }
}
