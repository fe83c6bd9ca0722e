//! Calls to the org: authenticated, within its budget and time limits. The budget is read from each
//! response.
//!
//! Invariant: a call whose token was refused is repeated once with a new token, except an upload,
//! which is never repeated. No redirect is followed and no proxy of the environment is used.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use reqwest::{
    Body, Method, Response,
    header::{ACCEPT, CONTENT_TYPE, DATE},
    redirect,
};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;

use super::{
    budget::{Admission, ApiCallBudget},
    classify::{Class, Judge, SalesforceFailure},
    response::{self, CALL_TIME, ErrorResponse},
    settings::{SalesforceSettings, base_path},
    token::{AccessToken, LoginFlow, SalesforceSession},
};
use crate::http::classify;

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Salesforce ends every call after ten minutes.
const CALL_TIME_MAX: Duration = Duration::from_secs(600);
const SYNC_TIME: Duration = Duration::from_secs(120);
/// An upload has one minute, and one more second per this many bytes.
const UPLOAD_BYTES_A_SECOND: usize = 1_000_000;
const UPLOAD_TIME: Duration = Duration::from_secs(60);
/// Connections that stay open while idle.
const IDLE_CONNECTIONS_MAX: usize = 10;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Maximum size of a JSON response: a page of a thousand jobs has about 1 MB.
const JSON_MAX: usize = 8 * 1024 * 1024;
/// Maximum size of an error response.
const REFUSAL_MAX: usize = 64 * 1024;
const LIMIT_INFO: &str = "sforce-limit-info";

/// One org, with the settings of one destination.
pub(super) struct SalesforceClient {
    http: reqwest::Client,
    login: Arc<LoginFlow>,
    session: SalesforceSession,
    base: String,
    pub(super) judge: Judge,
}

/// A request.
#[derive(Clone)]
pub(super) struct ApiCall {
    method: Method,
    path: String,
    body: Option<(&'static str, Vec<Bytes>)>,
    time: Duration,
    repeat: Repeat,
}

/// The repetition of a call with a refused token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    Never,
}

impl ApiCall {
    /// Creates a GET; `path` is relative to the version, e.g. `jobs/ingest`.
    pub(super) fn get(path: &str) -> Self {
        let path = path.to_owned();
        Self { method: Method::GET, path, body: None, time: CALL_TIME, repeat: Repeat::Once }
    }

    /// Reads a file of any length.
    pub(super) fn get_file(path: &str) -> Self {
        Self { time: CALL_TIME_MAX, ..Self::get(path) }
    }

    /// Changes a job.
    pub(super) fn json(method: Method, path: &str, body: String) -> Self {
        let body = Some(("application/json", vec![Bytes::from(body)]));
        Self { method, body, ..Self::get(path) }
    }

    /// Writes rows synchronously.
    pub(super) fn rows(method: Method, path: &str, body: String) -> Self {
        Self { time: SYNC_TIME, ..Self::json(method, path, body) }
    }

    /// Sends the parts as one body.
    pub(super) fn upload(path: &str, csv: Vec<Vec<u8>>) -> Self {
        let bytes: usize = csv.iter().map(Vec::len).sum();
        let seconds = u64::try_from(bytes / UPLOAD_BYTES_A_SECOND).unwrap_or(u64::MAX);
        let time = (UPLOAD_TIME + Duration::from_secs(seconds)).min(CALL_TIME_MAX);
        let body = Some(("text/csv; charset=UTF-8", csv.into_iter().map(Bytes::from).collect()));
        Self { method: Method::PUT, body, time, repeat: Repeat::Never, ..Self::get(path) }
    }

    fn is_file(&self) -> bool {
        self.time == CALL_TIME_MAX && self.method == Method::GET
    }
}

impl SalesforceClient {
    pub(super) fn new(settings: &SalesforceSettings) -> Result<Self, String> {
        let login = Arc::new(LoginFlow::new(settings)?);
        let is_http = login.origin().starts_with("http:");
        Ok(Self {
            http: http_client(is_http)?,
            login,
            session: settings.session.clone(),
            base: base_path(&settings.api_version),
            judge: Judge {
                external_id: settings.external_id.clone(),
                superseded: settings.superseded.clone(),
            },
        })
    }

    pub(super) fn budget(&self) -> &ApiCallBudget {
        self.session.budget()
    }

    /// Returns the origin of the login URL, for texts.
    pub(super) fn origin(&self) -> String {
        self.login.origin()
    }

    /// Returns the path of the API version, which composite calls use in their parts.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the user whose jobs are ours; `None` if the org did not report it.
    pub(super) async fn user_id(&self) -> Result<Option<String>, SalesforceFailure> {
        Ok(self.session.token(&self.http, &self.login).await?.user_id.clone())
    }

    /// Returns the response as JSON.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        call: ApiCall,
    ) -> Result<T, SalesforceFailure> {
        Ok(self.ask_when(call).await?.0)
    }

    /// Returns the response as JSON, and its time by the clock of the org.
    pub(super) async fn ask_when<T: DeserializeOwned>(
        &self,
        call: ApiCall,
    ) -> Result<(T, SystemTime), SalesforceFailure> {
        let (mut response, name) = self.open(call).await?;
        if response::says_html(response.headers()) {
            return Err(response::html(&name));
        }
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        // The header has whole seconds: round up.
        let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let date = date.map(|begun| begun + Duration::from_secs(1));
        let body = response::read(&mut response, JSON_MAX, &name).await?;
        Ok((response::json(&body, &name)?, date.unwrap_or_else(SystemTime::now)))
    }

    /// Returns only whether the call succeeded.
    pub(super) async fn send_only(&self, call: ApiCall) -> Result<(), SalesforceFailure> {
        let (mut response, name) = self.open(call).await?;
        if response::says_html(response.headers()) {
            return Err(response::html(&name));
        }
        // The body is read so that the connection can be reused.
        let _ = response::read(&mut response, REFUSAL_MAX, &name).await;
        Ok(())
    }

    /// Returns a successful response for the caller to read, and the name of the call for errors.
    pub(super) async fn open(
        &self,
        call: ApiCall,
    ) -> Result<(Response, String), SalesforceFailure> {
        self.within_budget().await?;
        let token = self.session.token(&self.http, &self.login).await?;
        match self.send(&call, &token).await {
            Err(failure) if failure.status == Some(401) => {
                self.session.forget(&token);
                if call.repeat == Repeat::Never {
                    // It is unknown whether anything was stored: the caller must read the state of
                    // the job.
                    return Err(SalesforceFailure { class: Class::Unknown, ..failure });
                }
                let token = self.session.token(&self.http, &self.login).await?;
                self.send(&call, &token).await
            }
            other => other,
        }
    }

    async fn within_budget(&self) -> Result<(), SalesforceFailure> {
        match self.budget().admit(Instant::now()) {
            Admission::Go(wait) => {
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                Ok(())
            }
            Admission::Stop { usage, after } => {
                let message = format!(
                    "{} of {} daily API calls are used; the rest is reserved for the users of the org",
                    usage.used, usage.limit
                );
                let mut failure = SalesforceFailure::new(Class::Quota, "API_BUDGET", &message);
                failure.after = Some(after);
                Err(failure)
            }
        }
    }

    async fn send(
        &self,
        call: &ApiCall,
        token: &Arc<AccessToken>,
    ) -> Result<(Response, String), SalesforceFailure> {
        let origin = token.instance.origin().ascii_serialization();
        let name = format!("{} {origin}", call.method);
        let accept = if call.is_file() { "text/csv" } else { "application/json" };
        let path = if call.path.starts_with('/') { "" } else { &self.base };
        let mut request = self
            .http
            .request(call.method.clone(), format!("{origin}{path}{}", call.path))
            .bearer_auth(token.access.expose_secret())
            .header(ACCEPT, accept)
            .timeout(call.time);
        if let Some((kind, body)) = &call.body {
            request = request.header(CONTENT_TYPE, *kind).body(as_one(body.clone()));
        }
        let sent = request.send().await;
        let mut response =
            sent.map_err(|error| response::no_answer(classify::failed(&error, &name)))?;
        let info = response.headers().get(LIMIT_INFO).and_then(|value| value.to_str().ok());
        if let Some(info) = info {
            self.budget().note(info, Instant::now());
        }
        if response.status().is_success() {
            return Ok((response, name));
        }
        let status = response.status().as_u16();
        let after = response::retry_after(response.headers());
        let is_html = response::says_html(response.headers());
        // An incomplete error response is still an error.
        let body = response::read(&mut response, REFUSAL_MAX, &name).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body).replace(token.access.expose_secret(), "[hidden]");
        let body = body.into_bytes();
        let refusal = ErrorResponse { call: &name, status, after, is_html, body: &body };
        Err(refusal.failure(&self.judge))
    }
}

/// Joins the parts to one body of known length.
fn as_one(mut parts: Vec<Bytes>) -> Body {
    if parts.len() == 1 {
        return parts.remove(0).into();
    }
    Body::wrap(ChunkedBody {
        left: parts.iter().map(|part| part.len() as u64).sum(),
        parts: parts.into(),
    })
}

struct ChunkedBody {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl hyper::body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.parts.pop_front();
        if let Some(part) = &next {
            self.left -= part.len() as u64;
        }
        Poll::Ready(next.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

fn http_client(is_http: bool) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("relais/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .gzip(true)
        .connect_timeout(CONNECT_TIME)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_TIME);
    if is_http {
        // Without TLS it must work on machines without root certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!(
            "cannot build the HTTP client: {why}; https needs the root certificates of the system"
        )
    })
}
