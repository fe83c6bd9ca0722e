//! `relais cleanup`: what is past its retention goes now, in the same small steps as `relais run` takes.

use std::io::{self, IsTerminal};

use relais_core::{
    query::{Cleaned, Retention},
    store::Store,
};
use serde_json::json;

use super::{Context, dead_letter::ask};
use crate::{
    args::CleanupArgs,
    failure::{Done, Failure},
    output::{Progress, waiting},
};

/// Rows of one table removed in one transaction.
const ROWS_MAX: usize = 1_000;
/// Passes that remove nothing before it ends: rows that stay for ever may lie in between, and one pass
/// looks past this many of them at most.
const LOOKED_PAST: u64 = 10_000;

pub(crate) async fn cleanup(context: &Context, args: &CleanupArgs) -> Done {
    let (settings, store) = context.store().await?;
    let retention = settings.retention;
    let expired = waiting("counting", store.expired(retention)).await?;
    if args.dry_run || expired.total() == 0 {
        return say(context, expired, true);
    }
    if !args.yes {
        confirm(expired)?;
    }
    let cleaned = remove(store.as_ref(), retention, expired).await?;
    say(context, cleaned, false)
}

fn confirm(expired: Cleaned) -> Done {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "{} would be removed for good and nobody is here to ask; add --yes, or look with \
             --dry-run",
            listed(expired)
        )));
    }
    ask(&format!("remove {} for good?", listed(expired)))
}

/// Pass by pass. What becomes old meanwhile is left to the next time.
async fn remove(
    store: &dyn Store,
    retention: Retention,
    expired: Cleaned,
) -> Result<Cleaned, Failure> {
    let overview = store.overview().await?;
    let rows: u64 = overview.inbox.iter().chain(&overview.outbox).map(|count| count.rows).sum();
    let idle_max = 2 + rows / LOOKED_PAST;
    let mut progress = Progress::new("rows", Some(expired.total()), true);
    let (mut cleaned, mut idle) = (Cleaned::default(), 0);
    while cleaned.total() < expired.total() && idle < idle_max {
        let pass = store.cleanup(retention, ROWS_MAX).await?;
        idle = if pass.total() == 0 { idle + 1 } else { 0 };
        cleaned = sum(cleaned, pass);
        progress.advance(pass.total())?;
    }
    progress.finish();
    Ok(cleaned)
}

fn sum(a: Cleaned, b: Cleaned) -> Cleaned {
    Cleaned {
        inbox: a.inbox + b.inbox,
        outbox: a.outbox + b.outbox,
        handled: a.handled + b.handled,
        dead_letters: a.dead_letters + b.dead_letters,
        processes: a.processes + b.processes,
    }
}

fn say(context: &Context, rows: Cleaned, dry_run: bool) -> Done {
    let output = &context.output;
    if output.json {
        return output.print_json(&json!({ "dry_run": dry_run, "removed": rows }));
    }
    match (rows.total(), dry_run) {
        (0, _) => output.print("nothing is past its retention"),
        (_, true) => output.print(&format!("dry run: would remove {}", listed(rows))),
        (_, false) => output.print(&format!("removed {}", listed(rows))),
    }
}

fn listed(rows: Cleaned) -> String {
    let Cleaned { inbox, outbox, handled, dead_letters, processes } = rows;
    let parts = [
        (inbox, "inbox rows"),
        (outbox, "outbox rows"),
        (handled, "marks of handlers"),
        (dead_letters, "resolved dead letters"),
        (processes, "ended processes"),
    ];
    let some = parts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_is_said() {
        let rows = Cleaned { inbox: 2, processes: 1, ..Cleaned::default() };
        assert_eq!(listed(rows), "2 inbox rows, 1 ended processes");
        assert_eq!(sum(rows, rows).total(), 6);
    }
}
