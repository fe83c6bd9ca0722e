//! Calls to the org: signed in, within its budget and time limits, each answer read for what is left
//! of the budget.
//!
//! Invariant: a call that was refused for its token is made again once with a new one, except an
//! upload, which is never made twice. No redirect is followed and no proxy of the environment used.

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
use serde::de::DeserializeOwned;

use super::{
    answer::{self, CALL_TIME, Refusal},
    budget::{Admission, Budget},
    classify::{Class, Failure, Judge},
    settings::{SalesforceSettings, base_path},
    token::{Login, Session, Token},
};
use crate::http::classify;

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Salesforce ends every call after ten minutes.
const CALL_TIME_MAX: Duration = Duration::from_secs(600);
const SYNC_TIME: Duration = Duration::from_secs(120);
/// An upload has a minute, and a second for each of these.
const UPLOAD_BYTES_A_SECOND: usize = 1_000_000;
const UPLOAD_TIME: Duration = Duration::from_secs(60);
/// Connections kept open while nothing is sent.
const IDLE_CONNECTIONS_MAX: usize = 10;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// The longest answer in JSON that is read: a page of a thousand jobs has about one.
const JSON_MAX: usize = 8 * 1024 * 1024;
/// How much of a refusal is read.
const REFUSAL_MAX: usize = 64 * 1024;
const LIMIT_INFO: &str = "sforce-limit-info";

/// One org, as one destination sees it.
pub(super) struct Client {
    http: reqwest::Client,
    login: Arc<Login>,
    session: Session,
    base: String,
    pub(super) judge: Judge,
}

/// What is sent.
#[derive(Clone)]
pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<(&'static str, Vec<Bytes>)>,
    time: Duration,
    repeat: Repeat,
}

/// What to do with a call whose token was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    Never,
}

impl Call {
    /// `path` is below the version, e.g. `jobs/ingest`.
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

    /// Writes rows at once.
    pub(super) fn rows(method: Method, path: &str, body: String) -> Self {
        Self { time: SYNC_TIME, ..Self::json(method, path, body) }
    }

    /// Sends the parts one after the other as one body.
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

impl Client {
    pub(super) fn new(settings: &SalesforceSettings) -> Result<Self, String> {
        let login = Arc::new(Login::new(settings)?);
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

    pub(super) fn budget(&self) -> &Budget {
        self.session.budget()
    }

    /// Where we log in, for people.
    pub(super) fn origin(&self) -> String {
        self.login.origin()
    }

    /// The path of a call below the host, as composite calls name their parts.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Whose jobs are ours; `None` if the org did not say.
    pub(super) async fn user_id(&self) -> Result<Option<String>, Failure> {
        Ok(self.session.token(&self.http, &self.login).await?.user_id.clone())
    }

    /// The answer as JSON.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T, Failure> {
        Ok(self.ask_when(call).await?.0)
    }

    /// The answer as JSON, and when it was given by the clock of the org.
    pub(super) async fn ask_when<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(T, SystemTime), Failure> {
        let (mut response, name) = self.open(call).await?;
        if answer::says_html(response.headers()) {
            return Err(answer::html(&name));
        }
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        // Whole seconds: this one has begun.
        let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let date = date.map(|begun| begun + Duration::from_secs(1));
        let body = answer::read(&mut response, JSON_MAX, &name).await?;
        Ok((answer::json(&body, &name)?, date.unwrap_or_else(SystemTime::now)))
    }

    /// Only whether it was done.
    pub(super) async fn tell(&self, call: Call) -> Result<(), Failure> {
        let (mut response, name) = self.open(call).await?;
        if answer::says_html(response.headers()) {
            return Err(answer::html(&name));
        }
        // Read so that the connection can be used again; what is in it does not matter.
        let _ = answer::read(&mut response, REFUSAL_MAX, &name).await;
        Ok(())
    }

    /// An answer that is a success, to be read by the caller; also what to call it in errors.
    pub(super) async fn open(&self, call: Call) -> Result<(Response, String), Failure> {
        self.within_budget().await?;
        let token = self.session.token(&self.http, &self.login).await?;
        match self.send(&call, &token).await {
            Err(failure) if failure.status == Some(401) => {
                self.session.forget(&token);
                if call.repeat == Repeat::Never {
                    // Whether anything of it was kept cannot be told: the caller must look.
                    return Err(Failure { class: Class::Unknown, ..failure });
                }
                let token = self.session.token(&self.http, &self.login).await?;
                self.send(&call, &token).await
            }
            other => other,
        }
    }

    async fn within_budget(&self) -> Result<(), Failure> {
        match self.budget().admit(Instant::now()) {
            Admission::Go(wait) => {
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                Ok(())
            }
            Admission::Stop { usage, after } => {
                let message = format!(
                    "{} of {} calls of the day are used; the rest is left to the org's people",
                    usage.used, usage.limit
                );
                let mut failure = Failure::new(Class::Quota, "API_BUDGET", &message);
                failure.after = Some(after);
                Err(failure)
            }
        }
    }

    async fn send(&self, call: &Call, token: &Arc<Token>) -> Result<(Response, String), Failure> {
        let origin = token.instance.origin().ascii_serialization();
        let name = format!("{} {origin}", call.method);
        let accept = if call.is_file() { "text/csv" } else { "application/json" };
        let path = if call.path.starts_with('/') { "" } else { &self.base };
        let mut request = self
            .http
            .request(call.method.clone(), format!("{origin}{path}{}", call.path))
            .bearer_auth(token.access.reveal())
            .header(ACCEPT, accept)
            .timeout(call.time);
        if let Some((kind, body)) = &call.body {
            request = request.header(CONTENT_TYPE, *kind).body(as_one(body.clone()));
        }
        let sent = request.send().await;
        let mut response =
            sent.map_err(|error| answer::no_answer(classify::failed(&error, &name)))?;
        let info = response.headers().get(LIMIT_INFO).and_then(|value| value.to_str().ok());
        if let Some(info) = info {
            self.budget().note(info, Instant::now());
        }
        if response.status().is_success() {
            return Ok((response, name));
        }
        let status = response.status().as_u16();
        let after = answer::retry_after(response.headers());
        let is_html = answer::says_html(response.headers());
        // A refusal that breaks off is still a refusal.
        let body = answer::read(&mut response, REFUSAL_MAX, &name).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body).replace(token.access.reveal(), "[hidden]");
        let body = body.into_bytes();
        let refusal = Refusal { call: &name, status, after, is_html, body: &body };
        Err(refusal.failure(&self.judge))
    }
}

/// The parts as one body of a known length.
fn as_one(mut parts: Vec<Bytes>) -> Body {
    if parts.len() == 1 {
        return parts.remove(0).into();
    }
    Body::wrap(Parts {
        left: parts.iter().map(|part| part.len() as u64).sum(),
        parts: parts.into(),
    })
}

struct Parts {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl hyper::body::Body for Parts {
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
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster; then theirs is used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
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
        // Without TLS it must work on machines that have no root certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!(
            "the HTTP client cannot be made ({why}); https needs the system's root certificates"
        )
    })
}
