//! `relais audit list`: actions of operators.

use relais_core::{
    id_prefix::IdKind,
    inspect::{AuditFilter, InspectExt},
};

use super::{
    CommandContext, ids,
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
    let mut lines = store.list_audit(filter.clone()).await?;
    if let (true, Some(target)) = (lines.is_empty(), &filter.target) {
        // Not the whole id, then.
        let given = target.clone();
        let target = ids::or_given(store.as_ref(), IdKind::DeadLetter, target.clone()).await?;
        let target = ids::or_given(store.as_ref(), IdKind::Process, target).await?;
        if target != given {
            lines = store.list_audit(AuditFilter { target: Some(target), ..filter }).await?;
        }
    }
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
