//! What must be so before relais works here: the server, its settings, the schema, the privileges.
//! Every refusal names the next step. Changes nothing.

use relais_core::store::{Changes, OutboxArrival, OutboxWork, StoreError, WorkQuery};

use tokio_postgres::Row;

use super::session::Client;
use super::{error::Failure, migrate, row};
use crate::migration::{self, Script};

/// The oldest server relais works with.
const VERSION_MIN: i32 = 130_000;

/// `postgresql 15.8`.
pub(super) async fn describe(client: &Client<'_>) -> Result<String, Failure> {
    let server = Server::read(client).await?;
    let number = server.version_text.split_whitespace().next().unwrap_or_default();
    Ok(format!("postgresql {number}"))
}

pub(super) async fn check(
    client: &Client<'_>,
    durability: Durability,
    scripts: &[Script],
) -> Result<(), Failure> {
    let server = Server::read(client).await?;
    server.judge(durability)?;
    let missing = client.query(sql!("missing_privileges"), &[]).await?;
    if !missing.is_empty() {
        let grant = |row: &tokio_postgres::Row| {
            let (table, privileges, role): (&str, &str, &str) =
                (row.get(0), row.get(1), row.get(2));
            format!("GRANT {privileges} ON {table} TO {role}")
        };
        let grants: Vec<String> = missing.iter().map(grant).collect();
        return Err(StoreError::setup(format!(
            "role {} lacks privileges; as the owner of the tables run: {}",
            server.role,
            grants.join("; ")
        ))
        .into());
    }
    let place = format!("schema {}", server.schema);
    let next = if server.may_create { migration::MIGRATE } else { migration::MIGRATE_AS_OWNER };
    migration::check(scripts, &migrate::applied(client).await?, &place, next)?;
    Ok(())
}

/// Numbers that move when rows may have come, or workers came or left.
pub(super) async fn changes(client: &Client<'_>) -> Result<Changes, Failure> {
    let statement = client.prepare_cached(sql!("changes")).await?;
    let row = client.query_one(&statement, &[]).await?;
    let number = |at| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
    Ok(Changes {
        rows: number(0),
        decisions: number(1),
        outbox: row.get(2),
        workers: number(3),
        handed_over: number(4),
    })
}

/// Finds the visible outbox rows of new ids, and destinations that may have due rows; `marks` has the mark of
/// each destination.
pub(super) async fn find_work(
    client: &Client<'_>,
    query: &WorkQuery,
    marks: &[i64],
) -> Result<OutboxWork, Failure> {
    let WorkQuery { new_ids, rows_max, destinations } = query;
    let mut work = OutboxWork::default();
    if !new_ids.is_empty() {
        let statement = client.prepare_cached(sql!("arrivals")).await?;
        let first: Vec<i64> = new_ids.iter().map(|range| range.first).collect();
        let last: Vec<i64> = new_ids.iter().map(|range| range.last).collect();
        let rows = client.query(&statement, &[&first, &last, &row::count(*rows_max)]).await?;
        let arrival = |row: &Row| OutboxArrival { id: row.get(0), destination: row.get(1) };
        work.arrivals = rows.iter().map(arrival).collect();
    }
    if !destinations.is_empty() {
        let statement = client.prepare_cached(sql!("destinations_with_work")).await?;
        let rows = client.query(&statement, &[destinations, &marks]).await?;
        work.destinations = rows.iter().map(|row| row.get(0)).collect();
    }
    Ok(work)
}

/// The treatment of settings that may lose acknowledged messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    Required,
    Waived,
}

/// The settings and rights of a session on its server.
#[derive(Clone, Debug)]
struct Server {
    version: i32,
    version_text: String,
    encoding: String,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standby: bool,
    read_only: String,
    role: String,
    schema: String,
    /// True if the role may create tables in the schema.
    may_create: bool,
}

impl Server {
    async fn read(client: &Client<'_>) -> Result<Self, Failure> {
        let row = client.query_one(sql!("server"), &[]).await?;
        Ok(Self {
            version: row.get(0),
            version_text: row.get(1),
            encoding: row.get(2),
            fsync: row.get(3),
            full_page_writes: row.get(4),
            synchronous_commit: row.get(5),
            standby: row.get(6),
            read_only: row.get(7),
            role: row.get(8),
            schema: row.get(9),
            may_create: row.get(10),
        })
    }

    fn judge(&self, durability: Durability) -> Result<(), StoreError> {
        let refuse = |text: String| Err(StoreError::setup(text));
        if self.version < VERSION_MIN {
            return refuse(format!("postgresql {} is too old; use 13 or newer", self.version_text));
        }
        if self.encoding != "UTF8" {
            return refuse(format!(
                "database encoding is {}; create the database with ENCODING 'UTF8'",
                self.encoding
            ));
        }
        if self.standby {
            return refuse("this server is a standby; connect to the primary".into());
        }
        if self.read_only == "on" {
            return refuse(
                "this session is read-only; set default_transaction_read_only = off".into(),
            );
        }
        if self.schema.is_empty() {
            return refuse(
                "search_path names no schema that exists and that this role may use; create it, or \
                 grant USAGE on it, or name another in the URL: options=-csearch_path%3Dname"
                    .into(),
            );
        }
        let settings = [
            ("fsync", &self.fsync),
            ("full_page_writes", &self.full_page_writes),
            ("synchronous_commit", &self.synchronous_commit),
        ];
        match settings.iter().find(|(_, value)| *value == "off") {
            Some((name, _)) if durability == Durability::Required => refuse(format!(
                "{name} is off: a power cut would lose acknowledged messages; turn it on \
                 (or set unsafe_durability if you accept that)"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: 150_018,
            version_text: "15.18".into(),
            encoding: "UTF8".into(),
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            standby: false,
            read_only: "off".into(),
            role: "relais".into(),
            schema: "public".into(),
            may_create: true,
        }
    }

    fn check(server: &Server, expected: &str) {
        let error = server.judge(Durability::Required).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_sound_server_passes() {
        server().judge(Durability::Required).unwrap();
        let local = Server { synchronous_commit: "local".into(), ..server() };
        local.judge(Durability::Required).unwrap();
    }

    #[test]
    fn what_could_lose_messages_is_refused_unless_waived() {
        let off = || "off".to_owned();
        for unsafe_server in [
            Server { fsync: off(), ..server() },
            Server { full_page_writes: off(), ..server() },
            Server { synchronous_commit: off(), ..server() },
        ] {
            check(&unsafe_server, "turn it on");
            unsafe_server.judge(Durability::Waived).unwrap();
        }
    }

    #[test]
    fn wrong_servers_are_refused_with_what_to_do() {
        check(&Server { version: 120_019, ..server() }, "use 13 or newer");
        check(&Server { encoding: "SQL_ASCII".into(), ..server() }, "ENCODING 'UTF8'");
        check(&Server { standby: true, ..server() }, "connect to the primary");
        check(&Server { read_only: "on".into(), ..server() }, "read-only");
        check(&Server { schema: String::new(), ..server() }, "search_path");
    }
}
