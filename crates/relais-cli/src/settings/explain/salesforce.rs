//! A destination of kind `salesforce` in plain words.

use relais::salesforce::{Api, Auth, OnMissing, SalesforceKeys};
use reqwest::Url;

use crate::settings::{
    destination::{BulkKeys, SalesforceTarget},
    quantity::show_duration,
};

/// Explains it in one line.
pub(super) fn target(target: &SalesforceTarget) -> String {
    let (api, version) = (target.api.as_str(), &target.keys.api_version);
    let org = shown(&target.keys.login_url);
    let key = &target.keys.external_id;
    match target.api {
        Api::Graph => format!("salesforce, records of each message by {key} at {org}, {api}"),
        _ => format!("salesforce, upserts {} by {key} at {org}, {api} {version}", target.object),
    }
}

/// Explains its keys, line by line.
pub(super) fn details(target: &SalesforceTarget) -> Vec<String> {
    let keys = &target.keys;
    let life = show_duration(keys.token_life);
    let mut lines = vec![format!("logs in with {}, again every {life}", auth(&target.auth))];
    if !keys.columns.is_empty() {
        let columns = keys.columns.iter().map(|(column, field)| format!("{column} = {field}"));
        lines.push(format!("columns {}", columns.collect::<Vec<_>>().join(", ")));
    }
    if let Some(text) = &keys.superseded {
        lines.push(format!("rows refused with {text:?} count as delivered"));
    }
    lines.extend(keys.hydrate.as_ref().map(|sql| hydrate(sql, keys)));
    lines.extend(matches!(target.api, Api::BulkV2 | Api::Auto).then(|| jobs(target)));
    lines
}

/// Returns only the origin of the URL.
fn shown(login_url: &str) -> String {
    Url::parse(login_url).map_or_else(|_| "?".to_owned(), |url| url.origin().ascii_serialization())
}

fn auth(auth: &Auth) -> &'static str {
    match auth {
        Auth::ClientCredentials { .. } => "client credentials",
        Auth::JwtBearer { .. } => "JWT bearer",
        Auth::RefreshToken { .. } => {
            "a refresh token (one that replaces it is kept encrypted in the database)"
        }
    }
}

fn hydrate(sql: &str, keys: &SalesforceKeys) -> String {
    let SalesforceKeys { hydrate_id: id, version, on_missing, .. } = keys;
    let sql: Vec<&str> = sql.split_whitespace().collect();
    let missing = match on_missing {
        OnMissing::Reject => "a dead letter",
        OnMissing::Skip => "counts as delivered",
    };
    let version = version.as_ref().map(|column| format!("; waits while `{column}` is older"));
    let version = version.unwrap_or_default();
    format!("fresh rows by `{id}`: {}; without a row: {missing}{version}", sql.join(" "))
}

fn jobs(target: &SalesforceTarget) -> String {
    let BulkKeys { rows, from, linger, poll_first, poll_max, .. } = target.bulk;
    let start = match target.api {
        Api::Auto => format!("when {from} or more wait"),
        _ => format!("after {}", show_duration(linger)),
    };
    format!(
        "bulk jobs of up to {rows} rows {start}, polled every {} to {}, transfers up to {}; \
         every {} orphaned jobs older than {} are aborted",
        show_duration(poll_first),
        show_duration(poll_max),
        show_duration(target.bulk.transfer_timeout),
        show_duration(target.bulk.sweep_every),
        show_duration(target.bulk.orphan_age),
    )
}
