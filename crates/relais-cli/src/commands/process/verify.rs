//! The state of a process from its log, compared with the stored state.

use relais_core::process::{ReplayDifference, ReplayedProcess};
use serde::Serialize;

use super::{super::CommandContext, find};
use crate::{
    args::ProcessId,
    commands::rows::plain,
    failure::{CommandError, Done},
    output::{TableColumn, Tone, table},
    wire,
};

/// The output of `--json`.
#[derive(Serialize)]
struct Verification<'a> {
    /// The state that the log leads to.
    replayed: &'a ReplayedProcess,
    differences: &'a [ReplayDifference],
}

/// Fails with exit code 1 if the two differ.
pub(super) async fn verify(context: &CommandContext, args: ProcessId) -> Done {
    let (settings, store) = context.store().await?;
    let process = find(store.as_ref(), &args.id).await?;
    let operator = wire::operator(&settings, store);
    let (replayed, differences) = operator.verify(&process).await.map_err(CommandError::failed)?;
    if context.output.json {
        let shown = Verification { replayed: &replayed, differences: &differences };
        context.output.print_json(&shown)?;
    } else if differences.is_empty() {
        let data = match replayed.data {
            Some(_) => "",
            None => "; data not compared: functions of its Rust definition make it",
        };
        let (entries, status) = (replayed.version, replayed.status.as_str());
        let text = format!("{entries} log entries lead to the stored state: {status}{data}");
        context.output.print(&text)?;
    } else {
        context.output.print(&differences_table(context, &differences))?;
    }
    if differences.is_empty() { Ok(()) } else { Err(CommandError::Printed) }
}

fn differences_table(context: &CommandContext, differences: &[ReplayDifference]) -> String {
    const COLUMNS: [TableColumn; 3] =
        [TableColumn::Text("FIELD"), TableColumn::Prose("LOG"), TableColumn::Prose("STORED")];
    let lines = differences.iter().map(|found| {
        vec![plain(&found.field), plain(&found.log), (found.stored.clone(), Tone::Bad)]
    });
    table(&context.output, &COLUMNS, lines)
}
