//! `relais reprocess discard`: discards undecodable rows.

use std::io::{self, IsTerminal};

use relais::dead_letters::{DecisionAuthor, DecisionOutcome};
use relais_core::{query::PAGE_MAX, store::StoreDriver};
use serde_json::json;

use super::{rows_text, serde_errors};
use crate::{
    args::DiscardRows,
    commands::{
        CommandContext,
        dead_letter::{ask, unchanged_text},
        rows::inbox_row,
    },
    failure::{CommandError, Done},
    output::{CommandProgress, LineBreaks, escape},
    wire,
};

pub(super) async fn discard(context: &CommandContext, args: &DiscardRows) -> Done {
    let (settings, store) = context.store().await?;
    let rows = match args.rows.ids.is_empty() {
        true => matching(store.as_ref(), args).await?,
        false => named(store.as_ref(), &args.rows.ids).await?,
    };
    let output = &context.output;
    if args.decision.dry_run {
        return match output.json {
            true => output.print_json(&json!({ "dry_run": true, "discarded": rows })),
            false => {
                output.print(&format!("dry run: would discard {}", rows_text(rows.len() as u64)))
            }
        };
    }
    if args.all {
        args.decision.needs_reason("discard many rows")?;
    }
    if !rows.is_empty() && !args.decision.yes {
        confirm(rows.len(), args)?;
    }
    let dead_letters = wire::dead_letters(&settings, store);
    let by = DecisionAuthor::new(&args.decision.actor()?, &args.decision.reason);
    let progress = CommandProgress::new("rows", Some(rows.len() as u64), true);
    let (mut discarded, mut unchanged) = (Vec::new(), Vec::new());
    for row in rows {
        let answer = dead_letters.discard_undecodable(row, &by).await?;
        progress.step();
        if answer == DecisionOutcome::Done {
            discarded.push(row);
            continue;
        }
        if !output.json {
            output.print(&escape(
                &format!("row {row}: {}", unchanged_text(&answer)),
                LineBreaks::Escape,
            ))?;
        }
        unchanged.push(json!({ "row": row, "answer": answer }));
    }
    progress.finish();
    if output.json {
        output.print_json(&json!({ "discarded": discarded, "unchanged": unchanged }))?;
    } else {
        output.print(&format!("discarded {}", rows_text(discarded.len() as u64)))?;
    }
    if unchanged.is_empty() || args.all { Ok(()) } else { Err(CommandError::Printed) }
}

async fn named(store: &dyn StoreDriver, ids: &[String]) -> Result<Vec<i64>, CommandError> {
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.push(inbox_row(store, id).await?.id);
    }
    Ok(rows)
}

/// Returns the rows that match the filters, oldest first.
async fn matching(store: &dyn StoreDriver, args: &DiscardRows) -> Result<Vec<i64>, CommandError> {
    let mut wanted = serde_errors(&args.rows);
    let mut rows = Vec::new();
    while rows.len() < args.rows.limit {
        wanted.limit = PAGE_MAX.min(args.rows.limit - rows.len());
        let page = store.undecodable_rows(wanted.clone()).await?;
        let Some(last) = page.last() else { break };
        wanted.after = *last;
        rows.extend(page);
    }
    Ok(rows)
}

fn confirm(count: usize, args: &DiscardRows) -> Done {
    if io::stdin().is_terminal() {
        return ask(&format!("Discard {}? This cannot be undone.", rows_text(count as u64)));
    }
    if args.all {
        return Err(CommandError::Usage(
            "cannot ask for confirmation: stdin is not a terminal; pass --yes to discard all matching rows, \
             or check with --dry-run"
                .to_owned(),
        ));
    }
    Ok(())
}
