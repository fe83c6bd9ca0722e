//! Loads processes for a change.

use relais_core::process::{Process, ProcessRef};
use uuid::Uuid;

use crate::postgres::{error::Failure, row, session::Client};

pub(in crate::postgres) async fn load(
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
