//! `relais audit list`: actions of operators.

use relais_core::inspect::{AuditFilter, InspectExt};

use super::{
    CommandContext,
    rows::{plain, print_list, print_page_json},
};
use crate::{
    args::AuditCommand,
    failure::Done,
    output::{TableColumn, table},
};

pub(crate) async fn audit(context: &CommandContext, command: AuditCommand) -> Done {
    const COLUMNS: [TableColumn; 6] = [
        TableColumn::Id("ID"),
        TableColumn::Id("AT"),
        TableColumn::Text("ACTOR"),
        TableColumn::Text("ACTION"),
        TableColumn::Id("TARGET"),
        TableColumn::Key("REASON"),
    ];
    let AuditCommand::List(args) = command;
    let (_, store) = context.store().await?;
    let limit = args.limit;
    let filter = AuditFilter { actor: args.actor, target: args.target, before: args.before, limit };
    let lines = store.list_audit(filter).await?;
    let last = lines.last().map(|line| line.id);
    if context.output.json {
        return print_page_json(context, &lines, limit, last);
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
    print_list(context, &shown, lines.len(), limit, last)
}
