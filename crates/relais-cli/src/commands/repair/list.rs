//! `relais reprocess list`: undecodable rows.

use relais_core::{
    inbox::InboxRow,
    inspect::{InspectExt, ListedRow, PayloadPart},
    query::Filter,
};

use crate::{
    args::UndecodableList,
    commands::{
        CommandContext,
        rows::{plain, print_list, print_page_json, problem, seconds},
    },
    failure::Done,
    output::{TableColumn, age, table},
};

pub(super) async fn list(context: &CommandContext, list: UndecodableList) -> Done {
    const COLUMNS: [TableColumn; 7] = [
        TableColumn::Id("ID"),
        TableColumn::Text("FROM"),
        TableColumn::Text("KEY"),
        TableColumn::Text("MESSAGE"),
        TableColumn::Number("BYTES"),
        TableColumn::Number("AGE"),
        TableColumn::Text("ERROR"),
    ];
    let (_, store) = context.store().await?;
    let filter = Filter {
        status: Some("SERDE_ERROR".to_owned()),
        source: list.source,
        code: list.code,
        key: list.key,
        since_seconds: list.since.map(seconds),
        before: list.page.before,
        limit: list.page.limit,
        ..Filter::default()
    };
    let limit = list.page.limit;
    if context.output.json {
        let rows = store.list_inbox(filter).await?;
        return print_page_json(context, &rows, limit, rows.last().map(|row| row.id));
    }
    // Without the bytes, which may be large.
    let rows = store.inbox_page(filter, PayloadPart::Preview).await?.rows;
    let now = store.overview().await?.now;
    let lines = rows.iter().map(|ListedRow { row, payload_bytes }| {
        let InboxRow { id, source_system, msg_key, message_id, received_at, .. } = row;
        let problem = problem(row.error_code.as_deref(), row.error_message.as_deref());
        vec![
            plain(id),
            plain(source_system),
            plain(msg_key),
            plain(message_id),
            plain(payload_bytes),
            plain(age(*received_at, now)),
            plain(problem),
        ]
    });
    let shown = table(&context.output, &COLUMNS, lines);
    print_list(context, &shown, rows.len(), limit, rows.last().map(|r| r.row.id))
}
