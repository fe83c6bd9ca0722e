//! `relais repair list`: what could not be decoded.

use relais_core::{browse::Listed, inbox::InboxRow, query::Filter};

use crate::{
    args::BrokenList,
    commands::{
        Context,
        rows::{plain, print_list, problem, seconds},
    },
    failure::Done,
    output::{Column, age, table},
};

pub(super) async fn list(context: &Context, list: BrokenList) -> Done {
    const COLUMNS: [Column; 7] = [
        Column::Id("ID"),
        Column::Text("FROM"),
        Column::Text("KEY"),
        Column::Text("MESSAGE"),
        Column::Number("BYTES"),
        Column::Number("AGE"),
        Column::Text("PROBLEM"),
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
    if context.output.json {
        return context.output.print_json(&store.list_inbox(filter).await?);
    }
    // Without the bytes, which may be many.
    let rows = store.browse_inbox(filter).await?;
    let now = store.overview().await?.now;
    let lines = rows.iter().map(|Listed { row, payload_bytes }| {
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
    print_list(context, &shown, rows.len(), list.page.limit, rows.last().map(|r| r.row.id))
}
