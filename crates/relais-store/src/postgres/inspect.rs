//! The reads of operators: pages of rows, single rows, and the trail of a message.

mod overview;
mod pages;

use futures_util::future::{try_join, try_join5};
use relais_core::{
    async_trait,
    dead_letter::Origin,
    id_prefix::{IDS_MAX, IdKind, IdPrefix},
    inspect::{Inspect, MessageRow, MessageTable, PageQuery, PageRows, StoreDescription, Trail},
    query::{Overview, PAGE_MAX},
    report::{REPORT_VALID, REPORTS_MAX, Report},
    store::StoreResult,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    PostgresStore, adopt, check,
    error::Failure,
    row::{self, Micros},
    session::Client,
};

#[async_trait]
impl Inspect for PostgresStore {
    async fn describe(&self) -> StoreResult<StoreDescription> {
        let server =
            self.others().run((), |client, _, ()| Box::pin(check::describe(client))).await?;
        let adopted = adopt::problems(self).await?;
        Ok(StoreDescription { server, warnings: self.shared.warnings.clone(), adopted })
    }

    async fn overview(&self) -> StoreResult<Overview> {
        self.others().run((), |client, _, ()| Box::pin(overview::overview(client))).await
    }

    async fn page(&self, query: PageQuery) -> StoreResult<PageRows> {
        self.others().run(query, |client, _, query| Box::pin(pages::page(client, query))).await
    }

    async fn get(&self, table: MessageTable, id: String) -> StoreResult<Option<MessageRow>> {
        self.others()
            .run((table, id), |client, _, (table, id)| Box::pin(get(client, *table, id)))
            .await
    }

    async fn trail(&self, message_id: String) -> StoreResult<Trail> {
        self.others()
            .run(message_id, |client, _, message_id| Box::pin(trail(client, message_id)))
            .await
    }

    async fn ids_with(&self, prefix: IdPrefix) -> StoreResult<Vec<String>> {
        self.others().run(prefix, |client, _, prefix| Box::pin(ids_with(client, prefix))).await
    }

    async fn reports(&self) -> StoreResult<Vec<Report>> {
        self.others().run((), |client, _, ()| Box::pin(reports(client))).await
    }
}

async fn ids_with(client: &Client<'_>, prefix: &IdPrefix) -> Result<Vec<String>, Failure> {
    let sql = match prefix.kind() {
        IdKind::DeadLetter => sql!("dead_letter_ids"),
        IdKind::Process => sql!("process_ids"),
        IdKind::OutboxMessage => sql!("outbox_message_ids"),
        IdKind::InboxMessage => sql!("inbox_message_ids"),
    };
    let (low, high) = prefix.range();
    let rows = client.query(sql, &[&low, &high, &row::count(IDS_MAX)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn get(
    client: &Client<'_>,
    table: MessageTable,
    id: &str,
) -> Result<Option<MessageRow>, Failure> {
    let number: Option<i64> = id.parse().ok();
    let uuid: Option<Uuid> = id.parse().ok();
    let found = match table {
        MessageTable::Inbox => client.query_opt(sql!("find_inbox"), &[&number, &id]).await?,
        MessageTable::Outbox => client.query_opt(sql!("find_outbox"), &[&number, &uuid]).await?,
        MessageTable::DeadLetters => client.query_opt(sql!("find_dead_letter"), &[&uuid]).await?,
    };
    let Some(found) = found else { return Ok(None) };
    Ok(Some(match table {
        MessageTable::Inbox => MessageRow::Inbox(row::inbox_row(&found)?),
        MessageTable::Outbox => MessageRow::Outbox(row::outbox_row(&found)?),
        MessageTable::DeadLetters => MessageRow::DeadLetter(row::dead_letter(&found)?),
    }))
}

/// All statements but the last two run in one round trip.
async fn trail(client: &Client<'_>, message_id: &str) -> Result<Trail, Failure> {
    let uuid = Uuid::try_parse(message_id).ok();
    let uuid_text = uuid.map(|id| id.to_string());
    let limit = row::count(PAGE_MAX);
    let received = client.prepare_cached(sql!("received_as")).await?;
    let sent = client.prepare_cached(sql!("sent_as")).await?;
    let caused = client.prepare_cached(sql!("caused_by")).await?;
    let dead_letters = client.prepare_cached(sql!("dead_letters_of")).await?;
    let process_log = client.prepare_cached(sql!("process_log_of")).await?;
    let attempts = client.prepare_cached(sql!("attempts")).await?;
    let (received, sent, caused, dead_letters, process_log) = try_join5(
        client.query(&received, &[&message_id, &limit]),
        client.query(&sent, &[&uuid, &limit]),
        client.query(&caused, &[&message_id, &limit]),
        client.query(&dead_letters, &[&message_id, &uuid_text, &limit]),
        client.query(&process_log, &[&message_id, &limit]),
    )
    .await?;
    let mut trail = Trail {
        received: all(&received, row::inbox_row)?,
        sent: all(&sent, row::outbox_row)?,
        caused: all(&caused, row::outbox_row)?,
        dead_letters: all(&dead_letters, row::dead_letter)?,
        process_log: all(&process_log, row::log_entry)?,
        attempts: Vec::new(),
    };
    let inbox: Vec<i64> = trail.received.iter().map(|row| row.id).collect();
    let outbox: Vec<i64> = trail.sent.iter().map(|row| row.id).collect();
    let (of_inbox, of_outbox) = try_join(
        client.query(&attempts, &[&Origin::Inbox.as_str(), &inbox, &limit]),
        client.query(&attempts, &[&Origin::Outbox.as_str(), &outbox, &limit]),
    )
    .await?;
    trail.attempts = all(&of_inbox, row::attempt)?;
    trail.attempts.extend(all(&of_outbox, row::attempt)?);
    Ok(trail)
}

fn all<T>(rows: &[Row], read: fn(&Row) -> row::Read<T>) -> Result<Vec<T>, Failure> {
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
}

async fn reports(client: &Client<'_>) -> Result<Vec<Report>, Failure> {
    let statement = client.prepare_cached(sql!("reports")).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&row::millis(REPORT_VALID), &row::count(REPORTS_MAX)];
    let rows = client.query(&statement, &values).await?;
    let read = |row: &Row| Report {
        worker: row.get("worker"),
        host: row.get("host"),
        pid: u32::try_from(row.get::<_, i64>("pid")).unwrap_or_default(),
        version: row.get("version"),
        started_at: row.get::<_, Micros>("started_at").0,
        reported_at: row.get::<_, Micros>("reported_at").0,
        alive: row.get("alive"),
        figures: row.get("figures"),
    };
    Ok(rows.iter().map(read).collect())
}
