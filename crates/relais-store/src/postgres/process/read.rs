//! Looking at processes and their logs.

use relais_core::{
    process::{LogEntry, Process, ProcessFilter, ProcessRef, ProcessStatus},
    query::PAGE_MAX,
};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::postgres::{error::Failure, row, session::Client};

pub(super) async fn load(
    client: &Client<'_>,
    wanted: &[ProcessRef],
) -> Result<Vec<Option<Process>>, Failure> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let (mut ids, mut keys) = (Vec::new(), Vec::new());
    for (place, one) in (0..).zip(wanted) {
        match one {
            ProcessRef::Id(id) => ids.push((*id, place)),
            ProcessRef::Key { process_type, business_key } => {
                keys.push((process_type, business_key, place));
            }
        }
    }
    let (ids, id_places): (Vec<Uuid>, Vec<i64>) = ids.into_iter().unzip();
    let (types, (keys, key_places)): (Vec<_>, (Vec<_>, Vec<i64>)) =
        keys.into_iter().map(|(process_type, key, place)| (process_type, (key, place))).unzip();
    let statement = client.prepare_cached(sql!("load_processes")).await?;
    let rows = client.query(&statement, &[&ids, &id_places, &types, &keys, &key_places]).await?;
    let mut found = vec![None; wanted.len()];
    for row in &rows {
        let (process, place) = row::placed_process(row)?;
        found[place] = Some(process);
    }
    Ok(found)
}

/// Not prepared: the best plan depends on which filters are set.
pub(super) async fn list(
    client: &Client<'_>,
    filter: &ProcessFilter,
) -> Result<Vec<Process>, Failure> {
    let status = filter.status.map(ProcessStatus::as_str);
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let values: [(&(dyn ToSql + Sync), Type); 6] = [
        (&status, Type::TEXT),
        (&filter.process_type, Type::TEXT),
        (&filter.business_key, Type::TEXT),
        (&filter.since_seconds, Type::INT8),
        (&filter.before, Type::UUID),
        (&limit, Type::INT8),
    ];
    let rows = client.query_typed(sql!("list_processes"), &values).await?;
    Ok(rows.iter().map(row::process).collect::<Result<_, _>>()?)
}

pub(super) async fn log(
    client: &Client<'_>,
    process_id: Uuid,
    before: Option<i64>,
    limit: usize,
) -> Result<Vec<LogEntry>, Failure> {
    let limit = row::count(limit.min(PAGE_MAX));
    let statement = client.prepare_cached(sql!("process_log")).await?;
    let rows = client.query(&statement, &[&process_id, &before, &limit]).await?;
    Ok(rows.iter().map(row::log_entry).collect::<Result<_, _>>()?)
}

pub(super) async fn log_of(
    client: &Client<'_>,
    message_id: &str,
) -> Result<Vec<LogEntry>, Failure> {
    let statement = client.prepare_cached(sql!("process_log_of")).await?;
    let rows = client.query(&statement, &[&message_id, &row::count(PAGE_MAX)]).await?;
    Ok(rows.iter().map(row::log_entry).collect::<Result<_, _>>()?)
}
