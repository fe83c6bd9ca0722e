//! The reads of operators: pages of rows, single rows, and the trail of a message.

mod overview;
mod pages;

use relais_core::{
    async_trait,
    dead_letter::{DeadLetter, Origin},
    id_prefix::{IDS_MAX, IdKind, IdPrefix},
    inspect::{Inspect, MessageRow, MessageTable, PageQuery, PageRows, StoreDescription, Trail},
    outbox::OutboxRow,
    query::{Overview, PAGE_MAX},
    report::{REPORT_VALID, REPORTS_MAX, Report},
    store::{StoreError, StoreResult},
};
use rusqlite::Connection;
use uuid::Uuid;

use super::{
    SqliteStore, adopt, attempt,
    row::{all, first, limit, millis},
};

#[async_trait]
impl Inspect for SqliteStore {
    async fn describe(&self) -> StoreResult<StoreDescription> {
        let server = format!("sqlite {}", rusqlite::version());
        let adopted = adopt::problems(self).await?;
        Ok(StoreDescription { server, warnings: Vec::new(), adopted })
    }

    async fn overview(&self) -> StoreResult<Overview> {
        self.readers().read(overview::overview).await
    }

    async fn page(&self, query: PageQuery) -> StoreResult<PageRows> {
        self.readers().read(move |db| pages::page(db, &query)).await
    }

    async fn get(&self, table: MessageTable, id: String) -> StoreResult<Option<MessageRow>> {
        self.readers().read(move |db| get(db, table, &id)).await
    }

    async fn trail(&self, message_id: String) -> StoreResult<Trail> {
        self.readers().read(move |db| trail(db, &message_id)).await
    }

    async fn ids_with(&self, prefix: IdPrefix) -> StoreResult<Vec<String>> {
        let sql = match prefix.kind() {
            IdKind::DeadLetter => include_str!("sql/dead_letter_ids.sql"),
            IdKind::Process => include_str!("sql/process_ids.sql"),
            IdKind::OutboxMessage => include_str!("sql/outbox_message_ids.sql"),
            IdKind::InboxMessage => include_str!("sql/inbox_message_ids.sql"),
        };
        let (low, high) = prefix.range();
        let params = (low.to_owned(), high.to_owned(), limit(IDS_MAX));
        self.readers().read(move |db| all(db, sql, params, |c| c.string(0))).await
    }

    async fn reports(&self) -> StoreResult<Vec<Report>> {
        let params = (millis(REPORT_VALID), limit(REPORTS_MAX));
        self.readers()
            .read(move |db| {
                all(db, include_str!("sql/reports.sql"), params, |c| Report {
                    worker: c.string("worker"),
                    host: c.string("host"),
                    pid: u32::try_from(c.integer("pid")).unwrap_or_default(),
                    version: c.string("version"),
                    started_at: c.some_time("started_at"),
                    reported_at: c.some_time("reported_at"),
                    alive: c.flag("alive"),
                    figures: c.string("figures"),
                })
            })
            .await
    }
}

fn get(db: &Connection, table: MessageTable, id: &str) -> Result<Option<MessageRow>, StoreError> {
    Ok(match table {
        MessageTable::Inbox => {
            let params = (id.parse::<i64>().ok(), id);
            first(db, include_str!("sql/find_inbox.sql"), params, |c| c.inbox())?
                .map(MessageRow::Inbox)
        }
        MessageTable::Outbox => find_outbox(db, id)?.map(MessageRow::Outbox),
        MessageTable::DeadLetters => match Uuid::try_parse(id) {
            Ok(id) => find_dead_letter(db, id)?.map(MessageRow::DeadLetter),
            Err(_) => None,
        },
    })
}

pub(super) fn find_outbox(db: &Connection, id: &str) -> Result<Option<OutboxRow>, StoreError> {
    let message_id = Uuid::try_parse(id).map_or_else(|_| id.to_owned(), |id| id.to_string());
    let params = (id.parse::<i64>().ok(), message_id);
    first(db, include_str!("sql/find_outbox.sql"), params, |c| c.outbox())
}

pub(super) fn find_dead_letter(
    db: &Connection,
    id: Uuid,
) -> Result<Option<DeadLetter>, StoreError> {
    first(db, include_str!("sql/find_dead_letter.sql"), [id.to_string()], |c| c.dead_letter())
}

fn trail(db: &Connection, message_id: &str) -> Result<Trail, StoreError> {
    let most = limit(PAGE_MAX);
    let uuid = Uuid::try_parse(message_id).ok().map(|id| id.to_string());
    let by_id = (message_id, most);
    let received = all(db, include_str!("sql/received_as.sql"), by_id, |c| c.inbox())?;
    let sent = all(db, include_str!("sql/sent_as.sql"), (&uuid, most), |c| c.outbox())?;
    let caused = all(db, include_str!("sql/caused_by.sql"), by_id, |c| c.outbox())?;
    let letters = include_str!("sql/dead_letters_of.sql");
    let dead_letters = all(db, letters, (message_id, &uuid, most), |c| c.dead_letter())?;
    let process_log = all(db, include_str!("sql/process_log_of.sql"), by_id, |c| c.log_entry())?;
    let inbox: Vec<i64> = received.iter().map(|row| row.id).collect();
    let outbox: Vec<i64> = sent.iter().map(|row| row.id).collect();
    let mut attempts = attempt::list(db, Origin::Inbox, &inbox)?;
    attempts.extend(attempt::list(db, Origin::Outbox, &outbox)?);
    Ok(Trail { received, sent, caused, dead_letters, process_log, attempts })
}
