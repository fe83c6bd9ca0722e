//! The HTTP client of one URL, for messages to a destination and calls of a handler.
//!
//! Invariant: no redirect is followed and no proxy of the environment is used. Without `allow_private` it
//! connects only to public addresses. A problem shows only the origin of the URL and no value of a
//! configured header.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use relais_core::{InvalidSettings, delivery::Delivery};
use reqwest::{
    Client, Request, Response, Url,
    header::{HeaderMap, LOCATION, RETRY_AFTER},
    redirect,
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    HttpPublisherSettings, Method, WebhookSecret,
    classify::{self, harmless},
    outgoing,
    private_address::{self, NameLookup, PublicResolver},
};

/// Maximum number of bytes of a response that a problem contains.
const EXCERPT_MAX: usize = 4 * 1024;
/// Maximum number of bytes of a response that are read so that its connection can be reused.
pub(super) const DRAIN_MAX: usize = 64 * 1024;
/// Time limit for the body of a response. The status has decided by then.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Connections that stay open while idle. More than a usual `concurrency`: calls that return together would
/// close the rest, and the next calls would connect again.
const IDLE_CONNECTIONS_MAX: usize = 512;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Shorter header values are too common to be hidden in responses.
const HIDDEN_MIN: usize = 8;

/// A URL with its client, its configured headers and its secrets.
pub(super) struct HttpTarget {
    client: Client,
    url: Url,
    method: reqwest::Method,
    pub(super) fixed: HeaderMap,
    pub(super) secrets: Vec<WebhookSecret>,
    /// The name of the request in problems: `POST https://example.org`.
    pub(super) call: String,
    /// Texts that must not appear in a problem, even if the target echoes them.
    hidden: Vec<SecretString>,
}

impl HttpTarget {
    /// Validates the settings and builds the client, without connecting. The error says which
    /// setting to change. `ours` are the headers that relais sets itself.
    pub(super) fn new(
        settings: HttpPublisherSettings,
        ours: &[&str],
        lookup: Arc<dyn NameLookup>,
    ) -> Result<Self, InvalidSettings> {
        let url = private_address::check_url(&settings.url, settings.allow_private)?;
        let fixed = outgoing::fixed(&settings.headers, ours)?;
        let client = client(&settings, &url, lookup)?;
        Ok(Self {
            client,
            call: format!("{} {}", settings.method.as_str(), url.origin().ascii_serialization()),
            hidden: hidden(&settings.headers, &url),
            url,
            method: match settings.method {
                Method::Post => reqwest::Method::POST,
                Method::Put => reqwest::Method::PUT,
                Method::Patch => reqwest::Method::PATCH,
            },
            fixed,
            secrets: settings.secrets,
        })
    }

    /// Connects and requests the root of the host (`HEAD /`), without the configured headers. Any
    /// response is a success. The error says what is wrong and what to do.
    pub(super) async fn probe(&self) -> Result<String, String> {
        let origin = self.url.origin().ascii_serialization();
        let call = format!("HEAD {origin}");
        match self.client.head(format!("{origin}/")).send().await {
            Ok(_) if self.url.scheme() == "https" => {
                Ok(format!("{origin} answers, and its certificate is valid"))
            }
            Ok(_) => Ok(format!("{origin} answers")),
            Err(error) => {
                let failed = classify::failed(&error, &call);
                Err(failed.problem().map_or(call, |(problem, _)| problem.message.clone()))
            }
        }
    }

    /// Sends a request; without a response it is classified.
    pub(super) async fn send(
        &self,
        headers: HeaderMap,
        body: String,
    ) -> Result<Response, Delivery> {
        // Built whole: a builder would merge and copy the headers once more.
        let mut request = Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        let sent = self.client.execute(request).await;
        sent.map_err(|error| classify::failed(&error, &self.call))
    }

    /// Classifies a response that is not a success.
    pub(super) async fn failure(&self, mut response: Response) -> Delivery {
        let status = response.status();
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| classify::retry_after(value.to_str().ok()?, SystemTime::now()));
        let mut message = format!("{} answered {status}", self.call);
        if status.is_redirection() {
            let host = self.redirect_host(response.headers());
            message.push_str(&format!(" to {host}; redirects are not followed; change the url"));
        }
        let excerpt = self.excerpt(&read(&mut response, EXCERPT_MAX).await);
        if !excerpt.is_empty() {
            message.push_str(": ");
            message.push_str(&excerpt);
        }
        classify::answered(status.as_u16(), after, &message)
    }

    /// Returns the host of a redirect.
    fn redirect_host(&self, headers: &HeaderMap) -> String {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| self.url.join(location).ok());
        let host = target.as_ref().and_then(Url::host_str);
        host.map_or_else(|| "an unknown host".to_owned(), |host| format!("`{host}`"))
    }

    /// Returns a response as text that is safe to show: shortened, without control characters and
    /// secrets.
    pub(super) fn excerpt(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for secret in &self.hidden {
            text = text.replace(secret.expose_secret(), "[hidden]");
        }
        harmless(text.trim())
    }
}

fn client(
    settings: &HttpPublisherSettings,
    url: &Url,
    lookup: Arc<dyn NameLookup>,
) -> Result<Client, InvalidSettings> {
    let mut builder = Client::builder()
        .user_agent(concat!("relais/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        // Sends the same request whatever features other connectors enable.
        .no_gzip()
        .timeout(settings.timeout)
        .connect_timeout(settings.connect_timeout.min(settings.timeout.mul_f64(0.75)))
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_TIME);
    if !settings.allow_private {
        builder = builder.dns_resolver(Arc::new(PublicResolver(lookup)));
    }
    if url.scheme() == "http" {
        // Without TLS it must work on machines without root certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "cannot build the HTTP client: {why}; https needs the root certificates of the system"
        );
        InvalidSettings::new(text).caused_by(error)
    })
}

/// Returns the secrets that a target might echo: header values, the tokens in them, the segments of
/// the URL's path and the values in its query. The longest come first, because one may contain
/// another.
fn hidden(headers: &[(String, SecretString)], url: &Url) -> Vec<SecretString> {
    let values = headers.iter().map(|(_, value)| value.expose_secret());
    let values =
        values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, token)| token)]);
    let written = url.query().unwrap_or_default().split('&');
    let written = written.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let mut hidden: Vec<String> = values
        .flatten()
        .chain(url.path().split('/'))
        .chain(written)
        .map(str::to_owned)
        .chain(url.query_pairs().map(|(_, value)| value.into_owned()))
        .filter(|text| text.len() >= HIDDEN_MIN)
        .collect();
    hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
    hidden.into_iter().map(SecretString::from).collect()
}

/// Reads at most `max` bytes of the body, and only what arrives in time.
pub(super) async fn read(response: &mut Response, max: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let all = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(max - body.len())]);
            if body.len() == max {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, all).await;
    body
}
