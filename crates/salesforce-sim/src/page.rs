//! The page at `/`: jobs, records and ledger in tables.

use std::fmt::Write;

use crate::{
    bulk::IngestJob,
    org::OrgState,
    reply::{ApiReply, HTML},
};

/// Maximum number of rows per table.
const ROWS_MAX: usize = 100;
/// Maximum number of characters of a value.
const VALUE_MAX: usize = 60;

pub(crate) fn page(org: &OrgState) -> ApiReply {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>salesforce-sim</title><style>body{font:14px sans-serif;margin:2em}\
         table{border-collapse:collapse;margin-bottom:2em}td,th{border:1px solid #999;\
         padding:.2em .5em;text-align:left}</style></head><body><h1>salesforce-sim</h1>",
    );
    let ledger = &org.ledger;
    let limits = org.limits.header(&org.faults.faults().limits, org.now());
    let summary = format!(
        "{} records, {} writes, {} repeated; {limits}",
        ledger.len(),
        ledger.writes(),
        ledger.repeated()
    );
    let _ = write!(html, "<p>{}</p>", escaped(&summary));
    jobs(&mut html, org);
    for object in &org.tables.schema.objects {
        let names: Vec<&str> = object.fields.iter().map(|field| field.name.as_str()).collect();
        let title = format!("{} ({})", object.name, org.tables.count(object.index));
        let rows = org.tables.all(object.index).rev().take(ROWS_MAX).map(|record| {
            let value = |field| record.get(object, field).map(|it| it.to_cell());
            (0..names.len()).map(|field| value(field).unwrap_or_default()).collect()
        });
        table(&mut html, &title, &names, rows);
    }
    let rows = ledger.recent().take(ROWS_MAX).map(|effect| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (key, version) = (text(&effect.external_id), text(&effect.version));
        let kind = format!("{:?}", effect.kind).to_lowercase();
        vec![effect.object.clone(), key, effect.id.to_string(), version, kind]
    });
    table(&mut html, "Last writes", &["Object", "External id", "Id", "Version", "Effect"], rows);
    html.push_str("</body></html>");
    ApiReply::text(200, HTML, html)
        .with("cache-control", "no-store".to_owned())
        .with("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'".to_owned())
}

fn jobs(html: &mut String, org: &OrgState) {
    let names = ["Job", "Object", "Operation", "State", "Processed", "Failed", "Message"];
    let row = |job: &IngestJob| {
        let (processed, failed) = job.counts();
        vec![
            job.id.to_string(),
            job.spec.object.name.clone(),
            job.spec.operation_name().to_owned(),
            job.state.name().to_owned(),
            processed.to_string(),
            failed.to_string(),
            job.error.clone().unwrap_or_default(),
        ]
    };
    table(html, "Jobs", &names, org.jobs.iter().rev().take(ROWS_MAX).map(row));
}

fn table(html: &mut String, title: &str, names: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = write!(html, "<h2>{}</h2><table><tr>", escaped(title));
    for name in names {
        let _ = write!(html, "<th>{}</th>", escaped(name));
    }
    html.push_str("</tr>");
    for row in rows {
        html.push_str("<tr>");
        for value in row {
            let short: String = value.chars().take(VALUE_MAX).collect();
            let _ = write!(html, "<td>{}</td>", escaped(&short));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
}

/// Escapes text for HTML and XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
