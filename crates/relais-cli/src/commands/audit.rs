//! `relais audit list`: who did what and why.

use relais_core::desk::AuditFilter;

use super::{
    Context,
    rows::{plain, print_list},
};
use crate::{
    args::AuditCommand,
    failure::Done,
    output::{Column, table},
};

pub(crate) async fn audit(context: &Context, command: AuditCommand) -> Done {
    const COLUMNS: [Column; 6] = [
        Column::Id("ID"),
        Column::Id("AT"),
        Column::Text("WHO"),
        Column::Text("WHAT"),
        Column::Id("TO"),
        Column::Id("WHY"),
    ];
    let AuditCommand::List(args) = command;
    let (_, store) = context.store().await?;
    let limit = args.limit;
    let filter = AuditFilter { actor: args.actor, target: args.target, before: args.before, limit };
    let lines = store.list_audit(filter).await?;
    if context.output.json {
        return context.output.print_json(&lines);
    }
    let cells = lines.iter().map(|line| {
        vec![
            plain(line.id),
            plain(line.at),
            plain(&line.actor),
            plain(&line.action),
            plain(&line.target),
            plain(&line.reason),
        ]
    });
    let shown = table(&context.output, &COLUMNS, cells);
    print_list(context, &shown, lines.len(), limit, lines.last().map(|line| line.id))
}
