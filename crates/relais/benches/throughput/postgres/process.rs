//! The bare transactions of processes: one statement for each kind of row, one after the other.

use std::time::Instant;

use anyhow::{Result, ensure};
use relais::core::process::{Change, TimerChange};
use tokio_postgres::{Client, Statement, Transaction, types::ToSql};
use uuid::Uuid;

use super::{PostgresFixture, connect};
use crate::process::{Bare, Script, Spent};

type Value<'a> = &'a (dyn ToSql + Sync);

impl Bare for PostgresFixture {
    async fn clear_processes(&self) -> Result<()> {
        let tables =
            "relais_inbox, relais_outbox, relais_process, relais_process_log, relais_timer";
        Ok(self.client.batch_execute(&format!("TRUNCATE {tables}")).await?)
    }

    async fn advance_plain(&self, script: &Script) -> Result<Spent> {
        let mut client = connect(&self.url).await?;
        let statements = Statements::prepare(&client).await?;
        let mut spent = Spent::default();
        for batch in script.batches() {
            let changes = script.changes(&batch)?;
            let started = Instant::now();
            let tx = client.transaction().await?;
            let ids = statements.read(&tx, &changes).await?;
            spent.reading += started.elapsed();
            let started = Instant::now();
            statements.write(&tx, &ids, &changes).await?;
            tx.commit().await?;
            spent.writing += started.elapsed();
        }
        Ok(spent)
    }
}

struct Statements {
    inbox: Statement,
    load: Statement,
    settle: Statement,
    begin: Statement,
    move_on: Statement,
    log: Statement,
    timer: Statement,
    end: Statement,
    send: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self> {
        Ok(Self {
            inbox: client.prepare(include_str!("../sql/postgres/process_inbox.sql")).await?,
            load: client.prepare(include_str!("../sql/postgres/process_load.sql")).await?,
            settle: client.prepare(include_str!("../sql/postgres/process_settle.sql")).await?,
            begin: client.prepare(include_str!("../sql/postgres/process_begin.sql")).await?,
            move_on: client.prepare(include_str!("../sql/postgres/process_move.sql")).await?,
            log: client.prepare(include_str!("../sql/postgres/process_log.sql")).await?,
            timer: client.prepare(include_str!("../sql/postgres/process_timer.sql")).await?,
            end: client.prepare(include_str!("../sql/postgres/process_end.sql")).await?,
            send: client.prepare(include_str!("../sql/postgres/process_send.sql")).await?,
        })
    }

    /// The next rows of the inbox and their processes, taken out of their columns; the rows' ids.
    async fn read(&self, tx: &Transaction<'_>, changes: &[Change]) -> Result<Vec<i64>> {
        let rows = tx.query(&self.inbox, &[&i64::try_from(changes.len())?]).await?;
        let ids = rows.iter().map(|row| row.get(0)).collect();
        let texts: Vec<[String; 5]> =
            rows.iter().map(|row| [1, 2, 3, 4, 5].map(|n| row.get(n))).collect();
        let expected = changes.iter().map(|change| change.message_id.as_ref());
        ensure!(texts.iter().map(|texts| texts.first()).eq(expected), "other rows in the inbox");
        let known = changes.iter().filter(|change| change.from > 0);
        let known: Vec<Uuid> = known.map(|change| change.process.process_id).collect();
        if !known.is_empty() {
            let found = tx.query(&self.load, &[&known]).await?;
            let read = found.iter().map(|row| {
                let texts: [Option<String>; 5] = [2, 3, 4, 5, 7].map(|n| row.get(n));
                (row.get::<_, Uuid>(0), row.get::<_, i32>(1), row.get::<_, i64>(8), texts)
            });
            ensure!(read.collect::<Vec<_>>().len() == known.len(), "a process is missing");
        }
        Ok(ids)
    }

    async fn write(&self, tx: &Transaction<'_>, ids: &[i64], changes: &[Change]) -> Result<()> {
        tx.execute(&self.settle, &[&ids]).await?;
        // A batch is of one kind.
        if changes.iter().all(|change| change.from == 0) {
            self.begin(tx, changes).await?;
        } else {
            self.move_on(tx, changes).await?;
        }
        self.log(tx, changes).await?;
        self.time(tx, changes).await?;
        self.send(tx, changes).await
    }

    async fn begin(&self, tx: &Transaction<'_>, begun: &[Change]) -> Result<()> {
        let values: [Value<'_>; 10] = [
            &column(begun, |change| change.process.process_id),
            &column(begun, |change| &change.process.process_type),
            &column(begun, |change| change.process.definition),
            &column(begun, |change| &change.process.business_key),
            &column(begun, |change| change.process.status.as_str()),
            &column(begun, |change| &change.process.current_step),
            &column(begun, |change| &change.process.data),
            &column(begun, |change| change.process.retries.cast_signed()),
            &column(begun, |change| &change.process.progress),
            &column(begun, |change| change.process.version),
        ];
        tx.execute(&self.begin, &values).await?;
        Ok(())
    }

    async fn move_on(&self, tx: &Transaction<'_>, moved: &[Change]) -> Result<()> {
        let values: [Value<'_>; 8] = [
            &column(moved, |change| change.process.process_id),
            &column(moved, |change| change.from),
            &column(moved, |change| change.process.status.as_str()),
            &column(moved, |change| &change.process.current_step),
            &column(moved, |change| &change.process.data),
            &column(moved, |change| change.process.retries.cast_signed()),
            &column(moved, |change| &change.process.progress),
            &column(moved, |change| change.process.version),
        ];
        let found = tx.execute(&self.move_on, &values).await?;
        ensure!(found == moved.len() as u64, "a process is not where it should be");
        Ok(())
    }

    async fn log(&self, tx: &Transaction<'_>, changes: &[Change]) -> Result<()> {
        let mut entries = Vec::new();
        for change in changes {
            for (seq, entry) in (change.from + 1..).zip(&change.log) {
                entries.push((change, seq, entry.event.name(), serde_json::to_string(entry)?));
            }
        }
        let values: [Value<'_>; 5] = [
            &column(&entries, |(change, ..)| change.process.process_id),
            &column(&entries, |(_, seq, ..)| *seq),
            &column(&entries, |(_, _, name, _)| *name),
            &column(&entries, |(.., json)| json),
            &column(&entries, |(change, ..)| &change.message_id),
        ];
        tx.execute(&self.log, &values).await?;
        Ok(())
    }

    async fn time(&self, tx: &Transaction<'_>, changes: &[Change]) -> Result<()> {
        let (mut set, mut ended) = (Vec::new(), Vec::new());
        for change in changes {
            let process_id = change.process.process_id;
            match &change.timer {
                TimerChange::Keep => {}
                TimerChange::Clear => ended.push(process_id),
                TimerChange::Set(timer) => {
                    set.push((process_id, timer, i64::try_from(timer.after.as_millis())?));
                }
            }
        }
        if !set.is_empty() {
            let values: [Value<'_>; 4] = [
                &column(&set, |(process_id, ..)| *process_id),
                &column(&set, |(_, timer, _)| &timer.step),
                &column(&set, |(_, timer, _)| timer.command_id),
                &column(&set, |(.., after_ms)| *after_ms),
            ];
            tx.execute(&self.timer, &values).await?;
        }
        if !ended.is_empty() {
            tx.execute(&self.end, &[&ended]).await?;
        }
        Ok(())
    }

    async fn send(&self, tx: &Transaction<'_>, changes: &[Change]) -> Result<()> {
        let sent: Vec<_> = changes.iter().flat_map(|change| &change.messages).collect();
        if sent.is_empty() {
            return Ok(());
        }
        let values: [Value<'_>; 11] = [
            &column(&sent, |message| message.message_id),
            &column(&sent, |message| message.category.as_str()),
            &column(&sent, |message| &message.aggregate_type),
            &column(&sent, |message| &message.aggregate_id),
            &column(&sent, |message| &message.event_type),
            &column(&sent, |message| &message.payload),
            &column(&sent, |message| message.headers.to_json()),
            &column(&sent, |message| &message.destination),
            &column(&sent, |message| &message.msg_key),
            &column(&sent, |message| &message.causation_id),
            &column(&sent, |message| &message.correlation_id),
        ];
        tx.execute(&self.send, &values).await?;
        Ok(())
    }
}

fn column<'v, T, C>(rows: &'v [T], pick: impl Fn(&'v T) -> C) -> Vec<C> {
    rows.iter().map(pick).collect()
}
