//! `relais cleanup`: deletes rows past their retention, in the same small transactions as `relais run`.

use std::io::{self, IsTerminal};

use relais_core::{
    query::{CleanupCounts, CleanupMode, Retention},
    store::StoreDriver,
};
use serde_json::json;

use super::{CommandContext, dead_letter::ask};
use crate::{
    args::CleanupArgs,
    failure::{CommandError, Done},
    output::{CommandProgress, waiting},
};

/// Most rows of one table deleted in one transaction.
const ROWS_MAX: usize = 1_000;
/// Rows that one pass skips at most. Kept rows may lie between expired ones, so several passes may delete
/// nothing before the end.
const SKIPPED_MAX: u64 = 10_000;

pub(crate) async fn cleanup(context: &CommandContext, args: &CleanupArgs) -> Done {
    let (settings, store) = context.store().await?;
    let retention = settings.retention;
    let expired = waiting("counting", store.cleanup(retention, CleanupMode::Count)).await?;
    if args.dry_run || expired.total() == 0 {
        return print_result(context, expired, true);
    }
    if !args.yes {
        confirm(expired)?;
    }
    let cleaned = remove(store.as_ref(), retention, expired).await?;
    print_result(context, cleaned, false)
}

fn confirm(expired: CleanupCounts) -> Done {
    if !io::stdin().is_terminal() {
        return Err(CommandError::Usage(format!(
            "cannot ask for confirmation: stdin is not a terminal; pass --yes to delete {}, or check with \
             --dry-run",
            listed(expired)
        )));
    }
    ask(&format!("Delete {}? This cannot be undone.", listed(expired)))
}

/// Deletes pass by pass. Rows that expire meanwhile are left for the next run.
async fn remove(
    store: &dyn StoreDriver,
    retention: Retention,
    expired: CleanupCounts,
) -> Result<CleanupCounts, CommandError> {
    let overview = store.overview().await?;
    let rows: u64 = overview.inbox.iter().chain(&overview.outbox).map(|count| count.rows).sum();
    let idle_max = 2 + rows / SKIPPED_MAX;
    let progress = CommandProgress::new("rows", Some(expired.total()), true);
    let (mut cleaned, mut idle) = (CleanupCounts::default(), 0);
    while cleaned.total() < expired.total() && idle < idle_max {
        let pass = store.cleanup(retention, CleanupMode::Remove { rows_max: ROWS_MAX }).await?;
        idle = if pass.total() == 0 { idle + 1 } else { 0 };
        cleaned += pass;
        progress.advance(pass.total());
    }
    progress.finish();
    Ok(cleaned)
}

fn print_result(context: &CommandContext, rows: CleanupCounts, dry_run: bool) -> Done {
    let output = &context.output;
    if output.json {
        return output.print_json(&json!({ "dry_run": dry_run, "removed": rows }));
    }
    match (rows.total(), dry_run) {
        (0, _) => output.print("no row is past its retention"),
        (_, true) => output.print(&format!("dry run: would delete {}", listed(rows))),
        (_, false) => output.print(&format!("deleted {}", listed(rows))),
    }
}

fn listed(rows: CleanupCounts) -> String {
    let CleanupCounts { inbox, outbox, handled, dead_letters, processes, versions } = rows;
    let parts = [
        (inbox, "inbox rows"),
        (outbox, "outbox rows"),
        (handled, "handler records"),
        (dead_letters, "resolved dead letters"),
        (processes, "ended processes"),
        (versions, "versions of aggregates"),
    ];
    let some = parts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_above_zero_are_listed() {
        let rows = CleanupCounts { inbox: 2, processes: 1, ..CleanupCounts::default() };
        assert_eq!(listed(rows), "2 inbox rows, 1 ended processes");
    }
}
