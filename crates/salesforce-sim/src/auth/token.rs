//! `/services/oauth2/token`: the grants.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{jwt, org_id, random, refused};
use crate::{
    config::AuthConfig,
    http::call::{HttpCall, pairs, value_of},
    org::SimulatedOrg,
    reply::ApiReply,
};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Maximum number of used-up refresh tokens that are remembered.
const SPENT_MAX: usize = 10_000;

/// The parameters of a request.
struct Form(Vec<(String, String)>);

impl Form {
    fn get(&self, name: &str) -> &str {
        value_of(&self.0, name).unwrap_or_default()
    }
}

pub(super) fn token(sim: &SimulatedOrg, call: &HttpCall, body: &[u8]) -> ApiReply {
    if call.method != hyper::Method::POST {
        return refused(400, "invalid_request", "must use HTTP POST");
    }
    let mut form = Form(pairs(&String::from_utf8_lossy(body)));
    form.0.extend(call.query.iter().cloned());
    if let Some((id, secret)) = basic(call) {
        form.0.push(("client_id".to_owned(), id));
        form.0.push(("client_secret".to_owned(), secret));
    }
    let granted = match form.get("grant_type") {
        "client_credentials" => client(&sim.auth, &form, SecretRule::Needed),
        JWT_BEARER => jwt::user(&sim.auth, &call.base, form.get("assertion")),
        "refresh_token" => return refresh(sim, call, &form),
        "password" => user(&sim.auth, &form),
        _ => Err(refused(400, "unsupported_grant_type", "grant type not supported")),
    };
    match granted {
        Ok(name) => grant(sim, call, &name, None),
        Err(reply) => reply,
    }
}

pub(super) fn revoke(sim: &SimulatedOrg, call: &HttpCall, body: &[u8]) -> ApiReply {
    let form = Form(pairs(&String::from_utf8_lossy(body)));
    let token = [form.get("token"), call.query("token").unwrap_or_default()];
    sim.org().sessions.end(token.into_iter().find(|token| !token.is_empty()).unwrap_or_default());
    ApiReply::empty(200)
}

/// The rule for the client secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretRule {
    Needed,
    Optional,
}

fn client(auth: &AuthConfig, form: &Form, secret: SecretRule) -> Result<String, ApiReply> {
    let (id, given) = (form.get("client_id"), form.get("client_secret"));
    if id.is_empty() {
        return Err(refused(400, "invalid_client_id", "client identifier invalid"));
    }
    if auth.client_id.as_ref().is_some_and(|known| known != id) {
        return Err(refused(400, "invalid_client_id", "client identifier invalid"));
    }
    let missing = given.is_empty() && secret == SecretRule::Needed;
    let wrong = auth
        .client_secret
        .as_ref()
        .is_some_and(|known| known != given && (secret == SecretRule::Needed || !given.is_empty()));
    if missing || wrong {
        return Err(refused(400, "invalid_client", "invalid client credentials"));
    }
    Ok(id.to_owned())
}

fn user(auth: &AuthConfig, form: &Form) -> Result<String, ApiReply> {
    client(auth, form, SecretRule::Needed)?;
    log_in(auth, form.get("username"), form.get("password"))
        .map_err(|()| refused(400, "invalid_grant", "authentication failure"))
}

/// Checks user name and password; a security token may follow the password.
pub(super) fn log_in(auth: &AuthConfig, name: &str, password: &str) -> Result<String, ()> {
    let known = auth.username.as_ref().is_none_or(|known| known == name);
    let right = auth.password.as_ref().is_none_or(|known| password.starts_with(known.as_str()));
    let given = !name.is_empty() && !password.is_empty();
    if known && right && given { Ok(name.to_owned()) } else { Err(()) }
}

fn refresh(sim: &SimulatedOrg, call: &HttpCall, form: &Form) -> ApiReply {
    let name = match client(&sim.auth, form, SecretRule::Optional) {
        Ok(name) => name,
        Err(reply) => return reply,
    };
    let given = form.get("refresh_token");
    {
        let sessions = &mut sim.org().sessions;
        let configured = sim.auth.refresh_token.as_ref().is_none_or(|known| known == given);
        let known = configured || sessions.refresh.contains(given);
        if given.is_empty() || !known || sessions.spent.contains(given) {
            return refused(400, "invalid_grant", "expired access/refresh token");
        }
    }
    if !sim.auth.rotate_refresh_tokens {
        return grant(sim, call, &name, None);
    }
    let new = random();
    {
        let sessions = &mut sim.org().sessions;
        sessions.refresh.remove(given);
        if sessions.spent.len() < SPENT_MAX {
            sessions.spent.insert(given.to_owned());
        }
        sessions.refresh.insert(new.clone());
    }
    grant(sim, call, &name, Some(new))
}

fn grant(
    sim: &SimulatedOrg,
    call: &HttpCall,
    name: &str,
    refresh_token: Option<String>,
) -> ApiReply {
    let mut org = sim.org();
    let now = org.now();
    let (token, user) = org.sessions.start(name, now);
    let mut answer = json!({
        "access_token": token,
        "instance_url": call.base,
        "api_instance_url": call.base,
        "id": format!("{}/id/{}/{user}", call.base, org_id()),
        "token_type": "Bearer",
        "issued_at": now.as_millisecond().to_string(),
        "signature": random(),
        "scope": "api",
    });
    if let Some(refresh_token) = refresh_token {
        answer["refresh_token"] = refresh_token.into();
    }
    ApiReply::json(200, answer)
}

/// Returns the client of `Authorization: Basic …`.
fn basic(call: &HttpCall) -> Option<(String, String)> {
    let (scheme, encoded) = call.header("authorization")?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}
