//! The bare transactions of processes: one statement for each row, prepared once.

use std::time::Instant;

use anyhow::{Result, ensure};
use relais::core::process::{Change, TimerChange};
use rusqlite::{Transaction, TransactionBehavior, params};

use super::{SqliteFixture, connect};
use crate::process::{Bare, Script, Spent};

impl Bare for SqliteFixture {
    async fn clear_processes(&self) -> Result<()> {
        self.on_connection(|db| {
            for table in [
                "relais_inbox",
                "relais_outbox",
                "relais_process",
                "relais_process_log",
                "relais_timer",
            ] {
                db.execute(&format!("DELETE FROM {table}"), [])?;
            }
            Ok(())
        })
        .await
    }

    async fn advance_plain(&self, script: &Script) -> Result<Spent> {
        let mut db = connect(&self.path)?;
        tokio::task::block_in_place(|| {
            let mut spent = Spent::default();
            for batch in script.batches() {
                let changes = script.changes(&batch)?;
                let started = Instant::now();
                let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let ids = read(&tx, &changes)?;
                spent.reading += started.elapsed();
                let started = Instant::now();
                for (id, change) in ids.iter().zip(&changes) {
                    write(&tx, *id, change)?;
                }
                tx.commit()?;
                spent.writing += started.elapsed();
            }
            Ok(spent)
        })
    }
}

/// The next rows of the inbox and their processes, taken out of their columns; the rows' ids.
fn read(tx: &Transaction<'_>, changes: &[Change]) -> Result<Vec<i64>> {
    let mut inbox = tx.prepare_cached(include_str!("../sql/sqlite/process_inbox.sql"))?;
    let rows = inbox.query_map([i64::try_from(changes.len())?], |row| {
        let texts: [String; 5] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
        Ok((row.get(0)?, texts))
    })?;
    let rows = rows.collect::<Result<Vec<(i64, _)>, _>>()?;
    let expected = changes.iter().map(|change| change.message_id.as_ref());
    ensure!(rows.iter().map(|(_, texts)| texts.first()).eq(expected), "other rows in the inbox");
    let mut load = tx.prepare_cached(include_str!("../sql/sqlite/process_load.sql"))?;
    for change in changes.iter().filter(|change| change.from > 0) {
        let texts: [Option<String>; 6] =
            load.query_row([change.process.process_id.to_string()], |row| {
                Ok([row.get(0)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(7)?])
            })?;
        ensure!(texts[0].is_some(), "a process is missing");
    }
    Ok(rows.into_iter().map(|(id, _)| id).collect())
}

fn write(tx: &Transaction<'_>, id: i64, change: &Change) -> Result<()> {
    run(tx, include_str!("../sql/sqlite/process_settle.sql"), [id])?;
    let process = &change.process;
    let process_id = process.process_id.to_string();
    let status = process.status.as_str();
    if change.from == 0 {
        let values = params![
            process_id,
            process.process_type,
            process.definition,
            process.business_key,
            status,
            process.current_step,
            process.data,
            process.retries,
            process.progress,
            process.version,
        ];
        run(tx, include_str!("../sql/sqlite/process_begin.sql"), values)?;
    } else {
        let values = params![
            process_id,
            change.from,
            status,
            process.current_step,
            process.data,
            process.retries,
            process.progress,
            process.version,
        ];
        run(tx, include_str!("../sql/sqlite/process_move.sql"), values)?;
    }
    for (seq, entry) in (change.from + 1..).zip(&change.log) {
        let json = serde_json::to_string(entry)?;
        let values = params![process_id, seq, entry.event.name(), json, change.message_id];
        run(tx, include_str!("../sql/sqlite/process_log.sql"), values)?;
    }
    match &change.timer {
        TimerChange::Keep => {}
        TimerChange::Clear => {
            run(tx, include_str!("../sql/sqlite/process_end.sql"), [process_id])?;
        }
        TimerChange::Set(timer) => {
            let after_ms = i64::try_from(timer.after.as_millis())?;
            let values = params![process_id, timer.step, timer.command_id.to_string(), after_ms];
            run(tx, include_str!("../sql/sqlite/process_timer.sql"), values)?;
        }
    }
    for message in &change.messages {
        let values = params![
            message.message_id.to_string(),
            message.category.as_str(),
            message.aggregate_type,
            message.aggregate_id,
            message.event_type,
            message.payload,
            message.headers.to_json(),
            message.destination,
            message.msg_key,
            message.causation_id,
            message.correlation_id,
        ];
        run(tx, include_str!("../sql/sqlite/process_send.sql"), values)?;
    }
    Ok(())
}

fn run(tx: &Transaction<'_>, sql: &str, values: impl rusqlite::Params) -> Result<()> {
    let written = tx.prepare_cached(sql)?.execute(values)?;
    ensure!(written == 1, "a row is not where it should be");
    Ok(())
}
