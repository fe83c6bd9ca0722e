//! The access token: asked for once however many calls wait for it, used for a while, thrown away
//! when the org does not know it any more.
//!
//! Invariant: a refused login is not repeated for a minute, so that a wrong secret does not lock the
//! user out. No secret shows in an error, whatever the answer holds.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use relais_core::text;
use reqwest::{Client, Url, header::CONTENT_TYPE};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{
    answer::{self, CALL_TIME},
    budget::Budget,
    classify::{Class, Failure, PERSON_PAUSE},
    jwt::Key,
    settings::{Auth, SalesforceSettings, login_url},
    vault::TokenVault,
};
use crate::{Secret, http::classify};

/// How long to rest when the org has replaced a refresh token that cannot be kept.
const ROTATED_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest answer of the token endpoint that is read.
const ANSWER_MAX: usize = 64 * 1024;

/// What destinations of one org and user share: the token and the [`Budget`]. Clones are the same
/// session.
#[derive(Clone, Default)]
pub struct Session(Arc<Shared>);

#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
    budget: Budget,
    vault: Option<TokenVault>,
}

#[derive(Default)]
struct Slot {
    /// Filled by the first call that needs it; the others wait for that one.
    cell: Arc<OnceCell<Arc<Token>>>,
    refused: Option<(Instant, Failure)>,
}

/// What the org gave us.
pub(super) struct Token {
    pub(super) access: Secret,
    /// Where to send calls.
    pub(super) instance: Url,
    /// Whose jobs are ours.
    pub(super) user_id: Option<String>,
    until: Instant,
}

/// How a token is asked for.
pub(super) struct Login {
    url: Url,
    auth: Auth,
    key: Option<Key>,
    life: Duration,
}

impl Session {
    /// A session whose refresh token may be replaced by the org at every use.
    pub fn with_vault(vault: TokenVault) -> Self {
        Self(Arc::new(Shared { vault: Some(vault), ..Shared::default() }))
    }

    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// The token in use, or a new one.
    pub(super) async fn token(
        &self,
        http: &Client,
        login: &Arc<Login>,
    ) -> Result<Arc<Token>, Failure> {
        let cell = {
            let (mut slot, now) = (self.slot(), Instant::now());
            if slot.cell.get().is_some_and(|token| token.until <= now) {
                slot.cell = Arc::default();
            }
            if let Some((until, failure)) = &slot.refused {
                if *until > now {
                    return Err(failure.clone());
                }
                slot.refused = None;
            }
            Arc::clone(&slot.cell)
        };
        let ask = || async {
            // Who waited for a call that was refused meanwhile does not ask again.
            if let Some((_, failure)) = &self.slot().refused {
                return Err(failure.clone());
            }
            let asked = match (&login.auth, &self.0.vault) {
                (Auth::RefreshToken { .. }, Some(vault)) => {
                    // Not dropped with its caller: the token it gets must be stored.
                    let exchange = exchange(http.clone(), Arc::clone(login), vault.clone());
                    tokio::spawn(exchange).await.unwrap_or_else(|_| Err(ended()))
                }
                _ => login.ask(http, None).await.and_then(|granted| login.without_vault(granted)),
            };
            asked.map(Arc::new).inspect_err(|failure| {
                if failure.class == Class::Auth {
                    let pause = failure.after.unwrap_or(PERSON_PAUSE);
                    self.slot().refused = Some((Instant::now() + pause, failure.clone()));
                }
            })
        };
        cell.get_or_try_init(ask).await.cloned()
    }

    /// The org does not know this token any more. One that is newer stays.
    pub(super) fn forget(&self, token: &Arc<Token>) {
        let mut slot = self.slot();
        if slot.cell.get().is_some_and(|current| Arc::ptr_eq(current, token)) {
            slot.cell = Arc::default();
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uses the stored refresh token, and stores the one that replaces it.
async fn exchange(http: Client, login: Arc<Login>, vault: TokenVault) -> Result<Token, Failure> {
    let held = vault.take(&login.credential()).await?;
    match login.ask(&http, held.token.as_ref()).await {
        Ok((token, Some(new))) if !login.is_used(&new, held.token.as_ref()) => {
            vault.keep(held, new).await;
            Ok(token)
        }
        other => {
            vault.release(&held).await;
            other.map(|(token, _)| token)
        }
    }
}

fn ended() -> Failure {
    Failure::new(Class::Down, "LOGIN_ENDED", "the log-in ended early; the program is stopping")
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.budget().usage()).finish()
    }
}

impl Login {
    pub(super) fn new(settings: &SalesforceSettings) -> Result<Self, String> {
        let url = login_url(&settings.login_url)?;
        let empty = |name: &str| Err(format!("`{name}` is empty"));
        let key = match &settings.auth {
            Auth::ClientCredentials { client_id, .. }
            | Auth::JwtBearer { client_id, .. }
            | Auth::RefreshToken { client_id, .. }
                if client_id.is_empty() =>
            {
                return empty("client_id");
            }
            Auth::JwtBearer { username, .. } if username.is_empty() => return empty("username"),
            Auth::JwtBearer { private_key, .. } => Some(Key::from_pem(private_key)?),
            Auth::ClientCredentials { .. } | Auth::RefreshToken { .. } => None,
        };
        Ok(Self { url, auth: settings.auth.clone(), key, life: settings.token_life })
    }

    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Asks for a token; also the refresh token that replaces the one we have, if any.
    async fn ask(
        &self,
        http: &Client,
        refresh: Option<&Secret>,
    ) -> Result<(Token, Option<Secret>), Failure> {
        let call = format!("login at {}", self.origin());
        let endpoint = format!("{}/services/oauth2/token", self.url.as_str().trim_end_matches('/'));
        let form = self.form(refresh)?;
        let sent = http
            .post(endpoint)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .timeout(CALL_TIME)
            .body(form)
            .send()
            .await;
        let mut response =
            sent.map_err(|error| answer::no_answer(classify::failed(&error, &call)))?;
        let status = response.status().as_u16();
        let after = answer::retry_after(response.headers());
        let is_html = answer::says_html(response.headers());
        let body = answer::read(&mut response, ANSWER_MAX, &call).await?;
        if status != 200 {
            return Err(self.refused(status, after, is_html, &body, refresh));
        }
        self.granted(&body)
    }

    /// The name of the refresh token in the database: another token in the settings is another name.
    fn credential(&self) -> String {
        let Auth::RefreshToken { client_id, refresh_token, .. } = &self.auth else {
            return String::new();
        };
        let parts = format!("{}\n{client_id}\n{}", self.url, refresh_token.reveal());
        format!("salesforce:{}", text::sha256_hex(parts.as_bytes()))
    }

    /// Whether `new` is the refresh token that was sent.
    fn is_used(&self, new: &Secret, sent: Option<&Secret>) -> bool {
        match (&self.auth, sent) {
            (_, Some(sent)) => sent.reveal() == new.reveal(),
            (Auth::RefreshToken { refresh_token, .. }, None) => {
                refresh_token.reveal() == new.reveal()
            }
            _ => true,
        }
    }

    /// Refuses a token that only this process would know.
    fn without_vault(&self, (token, new): (Token, Option<Secret>)) -> Result<Token, Failure> {
        if new.is_none_or(|new| self.is_used(&new, None)) {
            return Ok(token);
        }
        let why = format!(
            "login at {}: the org replaces the refresh token at every use, and there is no \
             `refresh_token_key` to keep the new one with; switch the rotation off in the app or set \
             the key, then sign in again and set a new `refresh_token`",
            self.origin()
        );
        let mut failure = Failure::new(Class::Auth, "REFRESH_TOKEN_ROTATES", &why);
        // The token of the settings is used up: to ask again would only hide the reason.
        failure.after = Some(ROTATED_PAUSE);
        Err(failure)
    }

    fn form(&self, refresh: Option<&Secret>) -> Result<String, Failure> {
        let pairs: Vec<(&str, String)> = match &self.auth {
            Auth::ClientCredentials { client_id, client_secret } => vec![
                ("grant_type", "client_credentials".into()),
                ("client_id", client_id.clone()),
                ("client_secret", client_secret.reveal().into()),
            ],
            Auth::JwtBearer { client_id, username, audience, .. } => {
                let audience = audience.clone().unwrap_or_else(|| audience_of(&self.url));
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let key = self.key.as_ref().expect("made with the settings");
                let assertion = key.assertion(client_id, username, &audience, now.as_secs())?;
                vec![
                    ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer".into()),
                    ("assertion", assertion),
                ]
            }
            Auth::RefreshToken { client_id, client_secret, refresh_token } => {
                let token = refresh.unwrap_or(refresh_token);
                let mut pairs = vec![
                    ("grant_type", "refresh_token".into()),
                    ("refresh_token", token.reveal().into()),
                    ("client_id", client_id.clone()),
                ];
                pairs.extend(client_secret.iter().map(|s| ("client_secret", s.reveal().into())));
                pairs
            }
        };
        let one = |(name, value): &(&str, String)| {
            format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        };
        Ok(pairs.iter().map(one).collect::<Vec<_>>().join("&"))
    }

    fn granted(&self, body: &[u8]) -> Result<(Token, Option<Secret>), Failure> {
        #[derive(Deserialize)]
        struct Granted {
            access_token: String,
            instance_url: String,
            id: Option<String>,
            refresh_token: Option<String>,
        }
        let odd = |why: &str| {
            let message = format!("login at {}: {why}; check `login_url`", self.origin());
            Failure::new(Class::Down, "LOGIN_UNREADABLE", &message)
        };
        let granted: Granted = serde_json::from_slice(body)
            .map_err(|_| odd("the answer is not that of a token endpoint"))?;
        let instance =
            Url::parse(&granted.instance_url).map_err(|_| odd("`instance_url` is no URL"))?;
        let is_plain = instance.username().is_empty() && instance.password().is_none();
        // Over TLS the name of the instance is proven to us; in clear anybody could be it.
        let is_safe = instance.scheme() == "https"
            || (instance.scheme() == "http" && self.url.scheme() == "http");
        if !is_plain || !is_safe || instance.host_str().is_none() {
            return Err(odd("`instance_url` is not one to send a token to"));
        }
        let user_id = granted.id.as_deref().and_then(|id| id.rsplit('/').next());
        let token = Token {
            access: Secret::new(granted.access_token),
            instance,
            user_id: user_id.filter(|id| !id.is_empty()).map(str::to_owned),
            until: Instant::now() + self.life,
        };
        Ok((token, granted.refresh_token.map(Secret::new)))
    }

    fn refused(
        &self,
        status: u16,
        after: Option<Duration>,
        is_html: bool,
        body: &[u8],
        sent: Option<&Secret>,
    ) -> Failure {
        #[derive(Default, Deserialize)]
        struct Refused {
            #[serde(default)]
            error: String,
            #[serde(default)]
            error_description: String,
        }
        let told: Option<Refused> = serde_json::from_slice(body).ok();
        let is_refusal = matches!(status, 400 | 401 | 403) && !is_html;
        let (class, advice) = match &told {
            Some(told) if is_refusal && told.error.contains("rate") => (Class::Quota, ""),
            Some(_) if is_refusal => {
                (Class::Auth, "; check the credentials and the app's settings in the org")
            }
            _ if status == 429 => (Class::Quota, ""),
            _ if status >= 500 || is_html || answer::looks_like_html(body) => (Class::Down, ""),
            _ => (Class::Auth, "; check `login_url`"),
        };
        let told = told.unwrap_or_default();
        let code = if told.error.is_empty() { format!("LOGIN_{status}") } else { told.error };
        let sent = sent.map(Secret::reveal).filter(|sent| !sent.is_empty());
        let hide = |text: String| match sent {
            Some(sent) => self.hide(text.replace(sent, "[hidden]")),
            None => self.hide(text),
        };
        let why = hide(told.error_description);
        let message = format!("login at {} refused: {code}: {why}{advice}", self.origin());
        let mut failure = Failure::new(class, &hide(code), &hide(message));
        failure.after = after.or(failure.after);
        failure
    }

    /// What an answer may show of what we sent: nothing secret.
    fn hide(&self, text: String) -> String {
        let secrets = match &self.auth {
            Auth::ClientCredentials { client_secret, .. } => vec![client_secret],
            Auth::JwtBearer { private_key, .. } => vec![private_key],
            Auth::RefreshToken { client_secret, refresh_token, .. } => {
                client_secret.iter().chain([refresh_token]).collect()
            }
        };
        let shown = secrets.iter().map(|s| s.reveal()).filter(|s| !s.is_empty());
        shown.fold(text, |text, secret| text.replace(secret, "[hidden]"))
    }
}

/// Who a claim is for: the login server of the org, whatever its own name is.
fn audience_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    if host == "test.salesforce.com" || host.contains(".sandbox.") {
        "https://test.salesforce.com".to_owned()
    } else {
        "https://login.salesforce.com".to_owned()
    }
}

#[cfg(test)]
mod tests;
