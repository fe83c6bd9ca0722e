//! The keys of kind `salesforce`.

use std::time::Duration;

use relais::salesforce::{API_VERSION, Api, OnMissing};
use reqwest::Url;
use secrecy::ExposeSecret;

use super::{
    quantity::duration,
    reader::Section,
    types::{BulkTuning, Hydrate, SalesforceAuth, SalesforceTarget},
};

/// The keys of `[destination.bulk]`.
pub(super) const BULK_KEYS: [&str; 8] = [
    "rows",
    "from",
    "linger",
    "poll_first",
    "poll_max",
    "transfer_timeout",
    "sweep_every",
    "orphan_age",
];
/// The longest pause of any kind.
const PAUSE_MAX: Duration = Duration::from_secs(86_400);

/// What a destination of kind `salesforce` says of itself. Its name may tell API and object:
/// `HTTP:SFDC:BulkV2:Contact`.
pub(super) fn target(section: &Section<'_>, name: Option<&str>) -> Option<SalesforceTarget> {
    let (named_api, named_object) = name.map_or((None, None), told_by_name);
    let login_url = login_url(section);
    let auth = auth(section);
    let apis = [Api::Auto, Api::BulkV2, Api::Collections, Api::Graph].map(|a| (a.as_str(), a));
    let api = section.choice("api", &apis).or(named_api).unwrap_or_default();
    let object = section.name("object");
    let object = object.or_else(|| named_object.filter(|_| !section.has("object")));
    if object.is_none() && api != Api::Graph && !section.has("object") {
        section.error("object", "is missing; write for example \"Contact\"");
    }
    let columns = section.options("columns", |_, _| None);
    let hydrate = hydrate(section);
    Some(SalesforceTarget {
        api,
        external_id: section.name("external_id").unwrap_or_else(|| "ExternalId__c".to_owned()),
        api_version: section.name("api_version").unwrap_or_else(|| API_VERSION.to_owned()),
        columns: columns.into_iter().map(|(k, v)| (k, v.expose_secret().to_owned())).collect(),
        hydrate,
        superseded: section.name("superseded"),
        token_life: pause(section, "token_life", Duration::from_secs(30 * 60)),
        bulk: bulk(section.child("bulk")),
        login_url: login_url?,
        auth: auth?,
        object: object.or_else(|| (api == Api::Graph).then(String::new))?,
    })
}

/// `HTTP:SFDC:<api>:<object>`.
fn told_by_name(name: &str) -> (Option<Api>, Option<String>) {
    let parts: Vec<&str> = name.split(':').collect();
    let [http, org, api, object] = parts.as_slice() else { return (None, None) };
    if !http.eq_ignore_ascii_case("HTTP") || !org.eq_ignore_ascii_case("SFDC") {
        return (None, None);
    }
    let api = match api.to_ascii_lowercase().as_str() {
        "bulkv2" | "bulk-v2" => Api::BulkV2,
        "collections" => Api::Collections,
        "graph" | "compositegraph" => Api::Graph,
        "auto" => Api::Auto,
        _ => return (None, None),
    };
    (Some(api), Some((*object).to_owned()))
}

/// The connector judges the rest; here only what can be said without repeating it.
fn login_url(section: &Section<'_>) -> Option<String> {
    if !section.has("login_url") {
        let how = "is missing; write for example \"https://acme.my.salesforce.com\"";
        section.error("login_url", how);
    }
    let text = section.text("login_url")?.value;
    let login = |url: &Url| !url.username().is_empty() || url.password().is_some();
    if Url::parse(&text).is_ok_and(|url| login(&url)) {
        section.error("login_url", "has a login in it; use `client_id` and a secret instead");
        return None;
    }
    Some(text)
}

fn auth(section: &Section<'_>) -> Option<SalesforceAuth> {
    const HOW: &str =
        "give one of `client_secret`, `private_key` (with `username`) and `refresh_token`";
    let client_id = section.required_name("client_id");
    let client_secret = section.secret("client_secret");
    let private_key = section.secret("private_key");
    let refresh_token = section.secret("refresh_token");
    let refresh_token_key = section.secret("refresh_token_key");
    let username = section.name("username");
    let audience = section.name("audience");
    if !section.has("private_key") {
        for key in ["username", "audience"].into_iter().filter(|key| section.has(key)) {
            section.error(key, "is for `private_key` only");
        }
    } else if !section.has("username") {
        section.error("username", "is missing; say as whom `private_key` signs in");
    }
    match (section.has("refresh_token"), section.has("refresh_token_key")) {
        (true, false) => section.error(
            "refresh_token_key",
            "is missing; an org may replace the refresh token at every use, and the new one is kept \
             in the database, encrypted with this key (`openssl rand -base64 32` makes one)",
        ),
        (false, true) => section.error("refresh_token_key", "is for `refresh_token` only"),
        _ => {}
    }
    let given = |key: &&str| section.has(key);
    match ["client_secret", "private_key", "refresh_token"].into_iter().filter(given).count() {
        0 => section.error("client_secret", format_args!("is missing; {HOW}")),
        // An app may need its secret beside the refresh token.
        2 if section.has("client_secret") && section.has("refresh_token") => {}
        1 => {}
        _ => section.error("private_key", format_args!("is one way too many; {HOW}")),
    }
    let client_id = client_id?;
    if let Some(refresh_token) = refresh_token {
        let key = refresh_token_key?;
        return Some(SalesforceAuth::RefreshToken { client_id, client_secret, refresh_token, key });
    }
    if let Some(private_key) = private_key {
        let username = username?;
        return Some(SalesforceAuth::JwtBearer { client_id, username, private_key, audience });
    }
    Some(SalesforceAuth::ClientCredentials { client_id, client_secret: client_secret? })
}

fn hydrate(section: &Section<'_>) -> Option<Hydrate> {
    const MISSING: [(&str, OnMissing); 2] =
        [("reject", OnMissing::Reject), ("skip", OnMissing::Skip)];
    let sql = section.text("hydrate").map(|text| text.value);
    let id = section.name("hydrate_id").unwrap_or_else(|| "id".to_owned());
    let on_missing = section.choice("on_missing", &MISSING).unwrap_or_default();
    let version = section.name("version");
    if !section.has("hydrate") && section.has("version") {
        section.error("version", "is for `hydrate` only: the column of its result to compare");
    }
    if section.has("hydrate") && sql.as_ref().is_some_and(|sql| sql.trim().is_empty()) {
        section.error("hydrate", "is empty; write a SELECT or remove the key");
    }
    Some(Hydrate { sql: sql?, id, version, on_missing })
}

/// `[destination.bulk]`
fn bulk(section: Section<'_>) -> BulkTuning {
    const ROWS_MAX: u32 = 1_000_000;
    let [rows, from, linger, poll_first, poll_max, transfer, sweep, orphan] = BULK_KEYS;
    let rows_of = |key, default| {
        let rows = section.whole(key, 1..=ROWS_MAX).unwrap_or(default);
        usize::try_from(rows).unwrap_or(usize::MAX)
    };
    let seconds = Duration::from_secs;
    let tuning = BulkTuning {
        rows: rows_of(rows, 10_000),
        from: rows_of(from, 2_000),
        linger: pause(&section, linger, seconds(1)),
        poll_first: pause(&section, poll_first, seconds(1)),
        poll_max: pause(&section, poll_max, seconds(30)),
        transfer_timeout: pause(&section, transfer, seconds(600)),
        sweep_every: pause(&section, sweep, seconds(900)),
        orphan_age: pause(&section, orphan, seconds(900)),
    };
    if tuning.poll_max < tuning.poll_first {
        section.error(poll_max, "is shorter than `poll_first`");
    }
    for key in [poll_first, transfer, sweep] {
        if section.parsed(key, duration).is_some_and(|pause| pause.is_zero()) {
            section.error(key, "must be at least 1ms");
        }
    }
    section.finish(|_| None);
    tuning
}

fn pause(section: &Section<'_>, key: &'static str, default: Duration) -> Duration {
    let pause = section.parsed(key, |text| match duration(text)? {
        pause if pause > PAUSE_MAX => Err("is longer than a day".to_owned()),
        pause => Ok(pause),
    });
    pause.unwrap_or(default)
}
