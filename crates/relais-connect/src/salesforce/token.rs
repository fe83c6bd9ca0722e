//! The access token: requested once for all waiting calls, kept for a time, dropped when refused.
//!
//! Invariant: a refused login is not repeated for a minute, so that a wrong secret does not lock
//! the user out. No secret appears in an error, whatever the response contains.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use relais_core::text;
use reqwest::{Client, Url, header::CONTENT_TYPE};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{
    budget::ApiCallBudget,
    classify::{Class, OPERATOR_PAUSE, SalesforceFailure},
    jwt::JwtKey,
    response::{self, CALL_TIME},
    settings::{Auth, SalesforceSettings, login_url},
    vault::TokenVault,
};
use crate::http::classify;

/// Pause when the org has rotated a refresh token that cannot be stored.
const ROTATED_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum size of a response of the token endpoint.
const ANSWER_MAX: usize = 64 * 1024;

/// The state shared by destinations of one org and user: the token and the [`ApiCallBudget`].
/// Clones are the same session.
#[derive(Clone, Default)]
pub struct SalesforceSession(Arc<SessionState>);

#[derive(Default)]
struct SessionState {
    slot: Mutex<TokenSlot>,
    budget: ApiCallBudget,
    vault: Option<TokenVault>,
}

#[derive(Default)]
struct TokenSlot {
    /// Filled by the first call that needs it; the others wait for that one.
    cell: Arc<OnceCell<Arc<AccessToken>>>,
    refused: Option<(Instant, SalesforceFailure)>,
}

/// A token granted by the org.
pub(super) struct AccessToken {
    pub(super) access: SecretString,
    /// The origin of the API calls.
    pub(super) instance: Url,
    /// The user whose jobs are ours.
    pub(super) user_id: Option<String>,
    until: Instant,
}

/// Requests tokens.
pub(super) struct LoginFlow {
    url: Url,
    auth: Auth,
    key: Option<JwtKey>,
    life: Duration,
}

impl SalesforceSession {
    /// Creates a session whose refresh token the org may rotate at every use.
    pub fn with_vault(vault: TokenVault) -> Self {
        Self(Arc::new(SessionState { vault: Some(vault), ..SessionState::default() }))
    }

    /// Returns the counter of API calls.
    pub fn budget(&self) -> &ApiCallBudget {
        &self.0.budget
    }

    /// Returns the current token, or requests a new one.
    pub(super) async fn token(
        &self,
        http: &Client,
        login: &Arc<LoginFlow>,
    ) -> Result<Arc<AccessToken>, SalesforceFailure> {
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
            // The login was refused while this call waited: it is not repeated.
            if let Some((_, failure)) = &self.slot().refused {
                return Err(failure.clone());
            }
            let asked = match (&login.auth, &self.0.vault) {
                (Auth::RefreshToken { .. }, Some(vault)) => {
                    // In its own task: the token must be stored even if the caller is dropped.
                    let exchange = exchange(http.clone(), Arc::clone(login), vault.clone());
                    tokio::spawn(exchange).await.unwrap_or_else(|_| Err(ended()))
                }
                _ => login.ask(http, None).await.and_then(|granted| login.without_vault(granted)),
            };
            asked.map(Arc::new).inspect_err(|failure| {
                if failure.class == Class::Auth {
                    let pause = failure.after.unwrap_or(OPERATOR_PAUSE);
                    self.slot().refused = Some((Instant::now() + pause, failure.clone()));
                }
            })
        };
        cell.get_or_try_init(ask).await.cloned()
    }

    /// Drops a token that the org refused. A newer one stays.
    pub(super) fn forget(&self, token: &Arc<AccessToken>) {
        let mut slot = self.slot();
        if slot.cell.get().is_some_and(|current| Arc::ptr_eq(current, token)) {
            slot.cell = Arc::default();
        }
    }

    fn slot(&self) -> MutexGuard<'_, TokenSlot> {
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uses the stored refresh token, and stores its replacement.
async fn exchange(
    http: Client,
    login: Arc<LoginFlow>,
    vault: TokenVault,
) -> Result<AccessToken, SalesforceFailure> {
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

fn ended() -> SalesforceFailure {
    SalesforceFailure::new(
        Class::Down,
        "LOGIN_ENDED",
        "the login ended early; the program is stopping",
    )
}

impl fmt::Debug for SalesforceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.budget().usage()).finish()
    }
}

impl LoginFlow {
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
            Auth::JwtBearer { private_key, .. } => Some(JwtKey::from_pem(private_key)?),
            Auth::ClientCredentials { .. } | Auth::RefreshToken { .. } => None,
        };
        Ok(Self { url, auth: settings.auth.clone(), key, life: settings.token_life })
    }

    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Requests a token. Also returns the refresh token that replaces the current one, if any.
    async fn ask(
        &self,
        http: &Client,
        refresh: Option<&SecretString>,
    ) -> Result<(AccessToken, Option<SecretString>), SalesforceFailure> {
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
            sent.map_err(|error| response::no_answer(classify::failed(&error, &call)))?;
        let status = response.status().as_u16();
        let after = response::retry_after(response.headers());
        let is_html = response::says_html(response.headers());
        let body = response::read(&mut response, ANSWER_MAX, &call).await?;
        if status != 200 {
            return Err(self.refused(status, after, is_html, &body, refresh));
        }
        self.granted(&body)
    }

    /// Returns the name of the refresh token in the database: another configured token has another
    /// name.
    fn credential(&self) -> String {
        let Auth::RefreshToken { client_id, refresh_token, .. } = &self.auth else {
            return String::new();
        };
        let parts = format!("{}\n{client_id}\n{}", self.url, refresh_token.expose_secret());
        format!("salesforce:{}", text::sha256_hex(parts.as_bytes()))
    }

    /// Returns whether `new` is the refresh token that was sent.
    fn is_used(&self, new: &SecretString, sent: Option<&SecretString>) -> bool {
        match (&self.auth, sent) {
            (_, Some(sent)) => sent.expose_secret() == new.expose_secret(),
            (Auth::RefreshToken { refresh_token, .. }, None) => {
                refresh_token.expose_secret() == new.expose_secret()
            }
            _ => true,
        }
    }

    /// Refuses a token that only this process would know.
    fn without_vault(
        &self,
        (token, new): (AccessToken, Option<SecretString>),
    ) -> Result<AccessToken, SalesforceFailure> {
        if new.is_none_or(|new| self.is_used(&new, None)) {
            return Ok(token);
        }
        let why = format!(
            "cannot log in at {}: the org rotates the refresh token at every use, and no \
             `refresh_token_key` is set to store the new one; disable the rotation in the app or set \
             the key, then sign in again and set a new `refresh_token`",
            self.origin()
        );
        let mut failure = SalesforceFailure::new(Class::Auth, "REFRESH_TOKEN_ROTATES", &why);
        // The configured token is used up: another request would only hide the reason.
        failure.after = Some(ROTATED_PAUSE);
        Err(failure)
    }

    fn form(&self, refresh: Option<&SecretString>) -> Result<String, SalesforceFailure> {
        let pairs: Vec<(&str, String)> = match &self.auth {
            Auth::ClientCredentials { client_id, client_secret } => vec![
                ("grant_type", "client_credentials".into()),
                ("client_id", client_id.clone()),
                ("client_secret", client_secret.expose_secret().into()),
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
                    ("refresh_token", token.expose_secret().into()),
                    ("client_id", client_id.clone()),
                ];
                pairs.extend(
                    client_secret.iter().map(|s| ("client_secret", s.expose_secret().into())),
                );
                pairs
            }
        };
        let one = |(name, value): &(&str, String)| {
            format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        };
        Ok(pairs.iter().map(one).collect::<Vec<_>>().join("&"))
    }

    fn granted(
        &self,
        body: &[u8],
    ) -> Result<(AccessToken, Option<SecretString>), SalesforceFailure> {
        #[derive(Deserialize)]
        struct TokenResponse {
            access_token: String,
            instance_url: String,
            id: Option<String>,
            refresh_token: Option<String>,
        }
        let odd = |why: &str| {
            let message = format!("cannot log in at {}: {why}; check `login_url`", self.origin());
            SalesforceFailure::new(Class::Down, "LOGIN_UNREADABLE", &message)
        };
        let granted: TokenResponse = serde_json::from_slice(body)
            .map_err(|_| odd("the response is not that of a token endpoint"))?;
        let instance =
            Url::parse(&granted.instance_url).map_err(|_| odd("`instance_url` is not a URL"))?;
        let is_plain = instance.username().is_empty() && instance.password().is_none();
        // With TLS the name of the instance is verified; without it any host could pretend to be
        // the instance.
        let is_safe = instance.scheme() == "https"
            || (instance.scheme() == "http" && self.url.scheme() == "http");
        if !is_plain || !is_safe || instance.host_str().is_none() {
            return Err(odd("`instance_url` is not safe to send a token to"));
        }
        let user_id = granted.id.as_deref().and_then(|id| id.rsplit('/').next());
        let token = AccessToken {
            access: SecretString::from(granted.access_token),
            instance,
            user_id: user_id.filter(|id| !id.is_empty()).map(str::to_owned),
            until: Instant::now() + self.life,
        };
        Ok((token, granted.refresh_token.map(SecretString::from)))
    }

    fn refused(
        &self,
        status: u16,
        after: Option<Duration>,
        is_html: bool,
        body: &[u8],
        sent: Option<&SecretString>,
    ) -> SalesforceFailure {
        #[derive(Default, Deserialize)]
        struct TokenError {
            #[serde(default)]
            error: String,
            #[serde(default)]
            error_description: String,
        }
        let error: Option<TokenError> = serde_json::from_slice(body).ok();
        let is_refusal = matches!(status, 400 | 401 | 403) && !is_html;
        let (class, advice) = match &error {
            Some(error) if is_refusal && error.error.contains("rate") => (Class::Quota, ""),
            Some(_) if is_refusal => {
                (Class::Auth, "; check the credentials and the app's settings in the org")
            }
            _ if status == 429 => (Class::Quota, ""),
            _ if status >= 500 || is_html || response::looks_like_html(body) => (Class::Down, ""),
            _ => (Class::Auth, "; check `login_url`"),
        };
        let error = error.unwrap_or_default();
        let code = if error.error.is_empty() { format!("LOGIN_{status}") } else { error.error };
        let sent = sent.map(|sent| sent.expose_secret()).filter(|sent| !sent.is_empty());
        let hide = |text: String| match sent {
            Some(sent) => self.hide(text.replace(sent, "[hidden]")),
            None => self.hide(text),
        };
        let why = hide(error.error_description);
        let message = format!("cannot log in at {}: {code}: {why}{advice}", self.origin());
        let mut failure = SalesforceFailure::new(class, &hide(code), &hide(message));
        failure.after = after.or(failure.after);
        failure
    }

    /// Removes the configured secrets from a text.
    fn hide(&self, text: String) -> String {
        let secrets = match &self.auth {
            Auth::ClientCredentials { client_secret, .. } => vec![client_secret],
            Auth::JwtBearer { private_key, .. } => vec![private_key],
            Auth::RefreshToken { client_secret, refresh_token, .. } => {
                client_secret.iter().chain([refresh_token]).collect()
            }
        };
        let shown = secrets.iter().map(|s| s.expose_secret()).filter(|s| !s.is_empty());
        shown.fold(text, |text, secret| text.replace(secret, "[hidden]"))
    }
}

/// Returns the audience of a claim: the login server of the org.
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
