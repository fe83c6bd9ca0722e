//! Figure: what the console asks the store, each page of it, with a long history in every table.
//!
//! Times are those of the store's answer, without HTTP: the median and the worst of some rounds after a
//! first one that is not counted. A list is asked for as the API does it: how far to look, then look.

use std::time::Instant;

use anyhow::Result;
use relais::{
    StoreDriver,
    core::{
        inspect::{AuditFilter, InspectExt, PayloadPart},
        process::ProcessFilter,
        query::Filter,
        store::StoreError,
    },
    explain::explain,
};
use uuid::Uuid;

use crate::{
    fixture::{Database, Fixture},
    options::Options,
    report::{Entry, Report, Target, Unit},
};

const TARGET_MS: f64 = 100.0;
const ROUNDS: usize = 5;
/// Rows of a page in the console.
const PAGE: usize = 50;

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = options.size.rows_many;
    eprintln!("{} console: {rows} rows in each table", D::NAME);
    let fixture = database.fixture("console").await?;
    fixture.fill_console(rows).await?;
    fixture.calm().await?;
    let store = fixture.store();
    let pages = pages(rows.cast_signed());
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); pages.len()];
    for round in 0..=ROUNDS {
        for ((_, page), times) in pages.iter().zip(&mut times) {
            let started = Instant::now();
            page.ask(store.as_ref()).await?;
            if round > 0 {
                times.push(started.elapsed().as_secs_f64() * 1_000.0);
            }
        }
    }
    fixture.remove().await?;
    for ((name, _), times) in pages.into_iter().zip(times) {
        let worst = times.iter().copied().fold(0.0, f64::max);
        report.add(Entry {
            store: D::NAME,
            name: format!("console, {name}"),
            unit: Unit::Millis,
            raw: Vec::new(),
            relais: times,
            target: Target::AtMost(TARGET_MS),
            note: format!("worst {worst:.1} ms"),
        });
    }
    Ok(())
}

/// One question of the console.
enum Page {
    Overview,
    Inbox(Filter),
    Outbox(Filter),
    DeadLetters(Filter),
    Processes(ProcessFilter),
    ProcessLog(Uuid),
    Audit(AuditFilter),
    ParkedKeys,
    Row(&'static str),
    Explain(&'static str),
}

impl Page {
    async fn ask(&self, store: &dyn StoreDriver) -> Result<(), StoreError> {
        match self {
            Self::Overview => drop(store.overview().await?),
            Self::Inbox(filter) => {
                store.inbox_page(filter.clone(), PayloadPart::BoundedPreview).await?;
            }
            Self::Outbox(filter) => {
                store.outbox_page(filter.clone(), PayloadPart::BoundedPreview).await?;
            }
            Self::DeadLetters(filter) => {
                store.dead_letter_page(filter.clone(), PayloadPart::BoundedPreview).await?;
            }
            Self::Processes(filter) => drop(store.list_processes(filter.clone()).await?),
            Self::ProcessLog(id) => drop(store.process_log(*id, None, PAGE).await?),
            Self::Audit(filter) => drop(store.list_audit(filter.clone()).await?),
            Self::ParkedKeys => drop(store.parked_keys(PAGE).await?),
            Self::Row(id) => {
                if let Some(row) = store.find_inbox((*id).into()).await? {
                    store.trail(row.message_id).await?;
                }
            }
            Self::Explain(id) => drop(explain(store, id).await?),
        }
        Ok(())
    }
}

/// A table: its name, its pages, three of its statuses, and whether its ids are those of dead letters.
type Table = (&'static str, fn(Filter) -> Page, [&'static str; 3], i64);

/// Every kind of page, with filters that match much, little and nothing.
fn pages(rows: i64) -> Vec<(String, Page)> {
    let mut pages = vec![("overview".to_owned(), Page::Overview)];
    let tables: [Table; 3] = [
        ("inbox", Page::Inbox, ["RECEIVED", "PROCESSED", "FAILED"], 0),
        ("outbox", Page::Outbox, ["PENDING", "DISPATCHED", "FAILED"], 0),
        ("dead letters", Page::DeadLetters, ["open", "resolved", "open"], 1),
    ];
    for (table, page, statuses, letters) in tables {
        let half = match letters {
            0 => (rows / 2).to_string(),
            _ => format!("00000000-0000-4000-8000-{:012}", rows / 2),
        };
        for (name, filter) in filters(statuses, half) {
            pages.push((format!("{table}, {name}"), page(filter)));
        }
    }
    let all = ProcessFilter { limit: PAGE, ..ProcessFilter::default() };
    let of_type = |name: &str| ProcessFilter { process_type: Some(name.into()), ..all.clone() };
    let of_key = ProcessFilter { business_key: Some("order-5".into()), ..all.clone() };
    let process = |n: i64| format!("00000000-0000-4000-9000-{n:012}").parse().ok();
    let later = ProcessFilter { before: process(rows / 2), ..all.clone() };
    let audit = AuditFilter { limit: PAGE, ..AuditFilter::default() };
    let by = |actor: &str| AuditFilter { actor: Some(actor.into()), ..audit.clone() };
    let about = AuditFilter { target: Some("dead-letter:9".into()), ..audit.clone() };
    let rest = [
        ("processes, rare type", Page::Processes(of_type("rare"))),
        ("processes, no such type", Page::Processes(of_type("none"))),
        ("processes, key", Page::Processes(of_key)),
        ("processes, halfway back", Page::Processes(later)),
        ("processes", Page::Processes(all)),
        ("process log", Page::ProcessLog(process(9).unwrap_or_default())),
        ("audit, rare actor", Page::Audit(by("rare"))),
        ("audit, no such actor", Page::Audit(by("none"))),
        ("audit, target", Page::Audit(about)),
        ("audit", Page::Audit(audit)),
        ("parked keys", Page::ParkedKeys),
        ("one row by its message id", Page::Row("m-9")),
        ("explain", Page::Explain("m-9")),
    ];
    pages.extend(rest.map(|(name, page)| (name.to_owned(), page)));
    pages
}

fn filters(statuses: [&str; 3], half: String) -> Vec<(String, Filter)> {
    let all = Filter { limit: PAGE, ..Filter::default() };
    let of_type = |name: &str| Filter { event_type: Some(name.into()), ..all.clone() };
    let in_status = |name: &str| Filter { status: Some(name.into()), ..all.clone() };
    let of_key = |name: &str| Filter { key: Some(name.into()), ..all.clone() };
    let back = |filter: Filter| Filter { before: Some(half.clone()), ..filter };
    let rare = |status: &str| Filter { event_type: Some("Rare".into()), ..in_status(status) };
    let mut named = vec![
        ("all".to_owned(), all.clone()),
        ("halfway back".into(), back(all.clone())),
        ("common type".into(), of_type("OrderChanged")),
        ("rare type".into(), of_type("Rare")),
        ("rare type, halfway back".into(), back(of_type("Rare"))),
        ("key".into(), of_key("order-5")),
        ("no such key".into(), of_key("none")),
        ("the last minute".into(), Filter { since_seconds: Some(60), ..all.clone() }),
        ("code".into(), Filter { code: Some("none".into()), ..all.clone() }),
        ("rare destination".into(), Filter { destination: Some("rare".into()), ..all.clone() }),
        ("rare source".into(), Filter { source: Some("rare".into()), ..all.clone() }),
    ];
    for status in statuses {
        named.push((status.to_owned(), in_status(status)));
        named.push((format!("{status}, rare type"), rare(status)));
        let recent = Filter { since_seconds: Some(60), ..in_status(status) };
        named.push((format!("{status}, the last minute"), recent));
    }
    named
}
