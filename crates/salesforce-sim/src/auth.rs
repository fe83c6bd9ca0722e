//! Login: tokens, their users, and their expiry.
//!
//! A token is valid only if this simulator issued it. Without configured credentials every login
//! succeeds.

mod jwt;
mod soap;
mod token;

use std::collections::{HashMap, HashSet};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{http::call::HttpCall, id::Id, org::SimulatedOrg, reply::ApiReply};

/// Maximum number of valid tokens; the least recently used one is removed first.
const SESSIONS_MAX: usize = 10_000;
const TOKEN_BYTES: usize = 48;

pub(crate) fn org_id() -> Id {
    Id::new("00D", 1)
}

/// All tokens and their users.
#[derive(Debug, Default)]
pub(crate) struct OrgSessions {
    tokens: HashMap<String, OrgSession>,
    /// One user per client or user name.
    users: HashMap<String, Id>,
    /// Refresh tokens issued by rotation.
    refresh: HashSet<String>,
    /// Refresh tokens that were used up.
    spent: HashSet<String>,
}

#[derive(Debug)]
struct OrgSession {
    user: Id,
    used: Timestamp,
}

impl OrgSessions {
    /// Issues a token for the user with this name.
    pub(crate) fn start(&mut self, name: &str, now: Timestamp) -> (String, Id) {
        let next = self.users.len() as u64 + 1;
        let user = *self.users.entry(name.to_owned()).or_insert_with(|| Id::new("005", next));
        if self.tokens.len() >= SESSIONS_MAX {
            let oldest = self.tokens.iter().min_by_key(|(_, session)| session.used);
            if let Some(token) = oldest.map(|(token, _)| token.clone()) {
                self.tokens.remove(&token);
            }
        }
        let token = format!("{}!{}", &org_id().as_str()[..15], random());
        self.tokens.insert(token.clone(), OrgSession { user, used: now });
        (token, user)
    }

    /// Returns the user of a valid token, and restarts its lifetime.
    pub(crate) fn user(&mut self, token: &str, now: Timestamp, seconds: u64) -> Option<Id> {
        let session = self.tokens.get_mut(token)?;
        let limit = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        if now.duration_since(session.used) > limit {
            self.tokens.remove(token);
            return None;
        }
        session.used = now;
        Some(session.user)
    }

    pub(crate) fn end(&mut self, token: &str) {
        self.tokens.remove(token);
    }

    pub(crate) fn end_all(&mut self) {
        self.tokens.clear();
    }
}

/// Routes all paths outside the data API.
pub(crate) fn route(sim: &SimulatedOrg, call: &HttpCall, body: &[u8]) -> ApiReply {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["services", "oauth2", "token"] => token::token(sim, call, body),
        ["services", "oauth2", "revoke"] => token::revoke(sim, call, body),
        ["services", "oauth2", "userinfo"] | ["id", _, _] => identity(sim, call),
        ["services", "Soap", "u" | "c", ..] => soap::login(sim, call, body),
        _ => ApiReply::not_found(),
    }
}

pub(crate) fn expired() -> ApiReply {
    ApiReply::error(401, "INVALID_SESSION_ID", "Session expired or invalid")
        .with("www-authenticate", "Token".to_owned())
}

/// Returns an error of the token endpoint.
pub(crate) fn refused(status: u16, error: &str, description: &str) -> ApiReply {
    ApiReply::json(status, json!({"error": error, "error_description": description}))
}

fn identity(sim: &SimulatedOrg, call: &HttpCall) -> ApiReply {
    let mut org = sim.org();
    let now = org.now();
    let user =
        call.token().and_then(|token| org.sessions.user(token, now, sim.auth.session_seconds));
    let Some(user) = user else {
        return ApiReply::text(403, "text/html; charset=UTF-8", "Bad_OAuth_Token");
    };
    ApiReply::json(
        200,
        json!({
            "id": format!("{}/id/{}/{user}", call.base, org_id()),
            "user_id": user,
            "organization_id": org_id(),
            "username": "integration@example.org",
            "display_name": "Integration",
            "urls": {"rest": format!("{}/services/data/v{{version}}/", call.base)},
        }),
    )
}

fn random() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}
