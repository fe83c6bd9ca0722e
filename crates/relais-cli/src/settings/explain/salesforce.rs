//! A destination of kind `salesforce` in plain words.

use relais::salesforce::{Api, OnMissing};
use reqwest::Url;

use crate::settings::{
    quantity::show_duration,
    types::{BulkTuning, Hydrate, SalesforceAuth, SalesforceTarget},
};

/// What it is, in one line.
pub(super) fn target(target: &SalesforceTarget) -> String {
    let (api, version) = (target.api.as_str(), &target.api_version);
    let org = shown(&target.login_url);
    let key = &target.external_id;
    match target.api {
        Api::Graph => format!("salesforce, records of each message by {key} at {org}, {api}"),
        _ => format!("salesforce, upserts {} by {key} at {org}, {api} {version}", target.object),
    }
}

/// How, line by line.
pub(super) fn details(target: &SalesforceTarget) -> Vec<String> {
    let life = show_duration(target.token_life);
    let mut lines = vec![format!("signs in with {}, again every {life}", auth(&target.auth))];
    if !target.columns.is_empty() {
        let columns = target.columns.iter().map(|(column, field)| format!("{column} = {field}"));
        lines.push(format!("columns {}", columns.collect::<Vec<_>>().join(", ")));
    }
    if let Some(text) = &target.superseded {
        lines.push(format!("rows refused with {text:?} count as delivered"));
    }
    lines.extend(target.hydrate.as_ref().map(hydrate));
    lines.extend(matches!(target.api, Api::BulkV2 | Api::Auto).then(|| jobs(target)));
    lines
}

/// Only the origin: errors of the connector say what is wrong with the rest.
fn shown(login_url: &str) -> String {
    Url::parse(login_url).map_or_else(|_| "?".to_owned(), |url| url.origin().ascii_serialization())
}

fn auth(auth: &SalesforceAuth) -> &'static str {
    match auth {
        SalesforceAuth::ClientCredentials { .. } => "the client's secret",
        SalesforceAuth::JwtBearer { .. } => "a signed claim",
        SalesforceAuth::RefreshToken { .. } => {
            "a refresh token (one that replaces it is kept encrypted in the database)"
        }
    }
}

fn hydrate(hydrate: &Hydrate) -> String {
    let Hydrate { sql, id, version, on_missing } = hydrate;
    let sql: Vec<&str> = sql.split_whitespace().collect();
    let missing = match on_missing {
        OnMissing::Reject => "a dead letter",
        OnMissing::Skip => "skipped",
    };
    let version = version.as_ref().map(|column| format!(", `{column}` older: again later"));
    let version = version.unwrap_or_default();
    format!("fresh rows by `{id}`: {}; not there: {missing}{version}", sql.join(" "))
}

fn jobs(target: &SalesforceTarget) -> String {
    let BulkTuning { rows, from, linger, poll_first, poll_max, .. } = target.bulk;
    let start = match target.api {
        Api::Auto => format!("when {from} or more wait"),
        _ => format!("after {}", show_duration(linger)),
    };
    format!(
        "bulk jobs of up to {rows} rows {start}, asked for every {} to {}, transfers up to {}; \
         every {} a sweep of jobs older than {}",
        show_duration(poll_first),
        show_duration(poll_max),
        show_duration(target.bulk.transfer_timeout),
        show_duration(target.bulk.sweep_every),
        show_duration(target.bulk.orphan_age),
    )
}
