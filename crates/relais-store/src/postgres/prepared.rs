//! Prepared statements on connections of the user: a statement of `send` is parsed and planned once for each
//! connection, not for each message.
//!
//! tokio-postgres has no cache of statements, and a transaction cannot carry one. So the process has one cache
//! for all connections. Its key is what the server gave the connection to cancel its queries: the number of its
//! process and a random secret. Two connections never share it, and one that was opened again has another.
//!
//! A statement that no longer exists fails, and ends the user's transaction with it. So one is used only where the session
//! provably keeps it:
//!
//! - The session that answers is the one that accepted the connection. Behind a pooler it is another one, and
//!   nothing is prepared.
//! - The statement was seen in a later transaction than the one that prepared it. A pool that runs `DISCARD
//!   ALL` on each return has removed it by then, and nothing is prepared on that connection any more.
//!
//! The server plans a statement again after a change of the schema. Its result is the same for every schema, so
//! that cannot fail.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use tokio_postgres::{
    Client, Error, GenericClient, Row, Statement,
    error::SqlState,
    types::{ToSql, Type},
};

use super::connection_key::ConnectionKey;

/// Most connections in the cache. With one more the one that was used least recently is forgotten.
const CONNECTIONS_MAX: usize = 1_024;

/// A parameter with its type.
pub(super) type TypedValue<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs a statement, prepared where the session keeps it.
pub(super) async fn query<C: GenericClient>(
    client: &C,
    sql: &'static str,
    values: &[TypedValue<'_>],
) -> Result<Vec<Row>, Error> {
    let Some(key) = ConnectionKey::of(client.client()).await else {
        return client.query_typed(sql, values).await;
    };
    let Some(statement) = statement(client.client(), key, sql, values).await? else {
        return client.query_typed(sql, values).await;
    };
    let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
    let result = client.query(&statement, &values).await;
    if let Err(error) = &result
        && error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
    {
        // Removed by the user (`DEALLOCATE`): the next transaction does not rely on it.
        connections().set(key, Standing::Unprepared);
    }
    result
}

/// The prepared statements of a connection, as far as they are known.
#[derive(Clone, Debug)]
enum Standing {
    /// It has sent once. A connection that never sends again is not worth a statement.
    Seen,
    /// It has these statements, since a transaction that began at `since`.
    Trial { since: i64, statements: Statements },
    /// The statements have outlived the transaction that prepared the first of them.
    Proven { statements: Statements },
    /// Its session is shared, or is reset between transactions.
    Unprepared,
}

/// The few statements of a connection, with their text.
type Statements = Vec<(&'static str, Statement)>;

fn find(statements: &Statements, sql: &str) -> Option<Statement> {
    let found = statements.iter().find(|(text, _)| *text == sql);
    found.map(|(_, statement)| statement.clone())
}

/// Returns the statement if the connection has it, and prepares it where that pays. Runs in the user's
/// transaction, so nothing in it may fail that would not fail without it.
async fn statement(
    client: &Client,
    key: ConnectionKey,
    sql: &'static str,
    values: &[TypedValue<'_>],
) -> Result<Option<Statement>, Error> {
    if let Some(statement) = connections().proven(key, sql) {
        return Ok(Some(statement));
    }
    let standing = connections().touch(key);
    let (mut statements, since) = match standing {
        None => {
            connections().set(key, Standing::Seen);
            return Ok(None);
        }
        Some(Standing::Unprepared) => return Ok(None),
        Some(Standing::Proven { statements }) => (statements, None),
        Some(Standing::Seen) => {
            let session = Session::see(client, sql).await?;
            if session.process_id != key.process_id() {
                connections().set(key, Standing::Unprepared);
                return Ok(None);
            }
            (Statements::new(), Some(session.began_at))
        }
        Some(Standing::Trial { since, statements }) => {
            let first = statements.first().map_or(sql, |(text, _)| *text);
            let session = Session::see(client, first).await?;
            if !session.has_statement {
                connections().set(key, Standing::Unprepared);
                return Ok(None);
            }
            (statements, (session.began_at == since).then_some(since))
        }
    };
    let statement = match find(&statements, sql) {
        Some(statement) => statement,
        None => {
            let types: Vec<_> = values.iter().map(|(_, kind)| kind.clone()).collect();
            let statement = client.prepare_typed(sql, &types).await?;
            statements.push((sql, statement.clone()));
            statement
        }
    };
    let standing = match since {
        Some(since) => Standing::Trial { since, statements },
        None => Standing::Proven { statements },
    };
    connections().set(key, standing);
    Ok(Some(statement))
}

/// The session that runs the user's transaction.
struct Session {
    process_id: i32,
    began_at: i64,
    has_statement: bool,
}

impl Session {
    async fn see(client: &Client, sql: &str) -> Result<Self, Error> {
        let rows = client.query_typed(sql!("see_session"), &[(&sql, Type::TEXT)]).await?;
        let row = rows.first().expect("a SELECT without FROM has one row");
        Ok(Self { process_id: row.get(0), began_at: row.get(1), has_statement: row.get(2) })
    }
}

/// The connections of this process that have sent.
#[derive(Default)]
struct Connections {
    by_key: HashMap<ConnectionKey, (u64, Standing)>,
    uses: u64,
}

impl Connections {
    /// Returns a statement that needs no further check.
    fn proven(&mut self, key: ConnectionKey, sql: &str) -> Option<Statement> {
        let (used, standing) = self.by_key.get_mut(&key)?;
        let Standing::Proven { statements } = standing else { return None };
        self.uses += 1;
        *used = self.uses;
        find(statements, sql)
    }

    /// Returns the standing of a connection that is used now.
    fn touch(&mut self, key: ConnectionKey) -> Option<Standing> {
        self.uses += 1;
        let (used, standing) = self.by_key.get_mut(&key)?;
        *used = self.uses;
        Some(standing.clone())
    }

    fn set(&mut self, key: ConnectionKey, standing: Standing) {
        if self.by_key.len() >= CONNECTIONS_MAX && !self.by_key.contains_key(&key) {
            let oldest = self.by_key.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.insert(key, (self.uses, standing));
    }
}

fn connections() -> MutexGuard<'static, Connections> {
    static CONNECTIONS: LazyLock<Mutex<Connections>> = LazyLock::new(Mutex::default);
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_was_used_least_recently_is_forgotten() {
        let mut connections = Connections::default();
        let key = |number: usize| ConnectionKey::new(i32::try_from(number).unwrap(), 7);
        for number in 0..CONNECTIONS_MAX {
            assert!(connections.touch(key(number)).is_none());
            connections.set(key(number), Standing::Seen);
        }
        assert!(connections.touch(key(0)).is_some());
        connections.touch(key(CONNECTIONS_MAX));
        connections.set(key(CONNECTIONS_MAX), Standing::Seen);
        assert_eq!(connections.by_key.len(), CONNECTIONS_MAX);
        assert!(connections.touch(key(0)).is_some() && connections.touch(key(1)).is_none());
    }
}
