//! The requests to a schema registry, and what their answers mean.

use std::{fmt, fs, time::Duration};

use relais_core::InvalidSettings;
use reqwest::{
    Certificate, Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
    redirect,
};
use secrecy::ExposeSecret;
use serde::{Deserialize, de::DeserializeOwned};

use super::{RegistryError, SchemaRegistrySettings};
use crate::kafka_settings::registry_url;

/// The advice if the registry's certificate is not accepted.
const CHECK_TLS: &str =
    "check `registry_tls_ca`, the name in `registry_url` and the registry's certificate";
/// Time limit of one request, and of its connection.
pub(in crate::kafka) const ANSWER_MAX: Duration = Duration::from_secs(5);
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The largest answer.
const BODY_MAX: usize = 4 << 20;
/// The most characters of an error that are shown.
const EXCERPT_MAX: usize = 300;

const JSON: &str = "application/vnd.schemaregistry.v1+json";
/// Error codes of the API: no subject, no version, no schema.
const NOT_FOUND: [u32; 3] = [40_401, 40_402, 40_403];

/// A schema as the registry answers it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SchemaAnswer {
    pub(super) schema: String,
    /// Absent for Avro.
    pub(super) schema_type: Option<String>,
    #[serde(default)]
    references: Option<Vec<SchemaReference>>,
}

/// A schema that another one names.
#[derive(Debug, Deserialize)]
struct SchemaReference {
    subject: String,
    version: i64,
}

impl SchemaAnswer {
    pub(super) fn references(&self) -> impl Iterator<Item = (String, i64)> {
        self.references.iter().flatten().map(|one| (one.subject.clone(), one.version))
    }
}

#[derive(Debug, Deserialize)]
struct IdAnswer {
    id: u32,
}

#[derive(Debug, Default, Deserialize)]
struct ErrorAnswer {
    error_code: Option<u32>,
    message: Option<String>,
}

/// Sends requests to one registry.
pub(super) struct RegistryRequests {
    http: Client,
    url: Url,
    login: Option<HeaderValue>,
}

impl RegistryRequests {
    pub(super) fn new(settings: &SchemaRegistrySettings) -> Result<Self, InvalidSettings> {
        let url = registry_url(&settings.url).map_err(|why| format!("registry_url {why}"))?;
        let login = settings.login().map(|login| {
            let mut value = HeaderValue::from_str(login.expose_secret()).map_err(|_| {
                "the login of the registry has characters that a header cannot have".to_owned()
            })?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Self { http: client(settings, &url)?, url, login: login.transpose()? })
    }

    pub(super) async fn subjects(&self) -> Result<usize, RegistryError> {
        let subjects: Vec<String> = self.get(&["subjects"]).await?;
        Ok(subjects.len())
    }

    pub(super) async fn schema(&self, id: u32) -> Result<SchemaAnswer, RegistryError> {
        self.get(&["schemas", "ids", &id.to_string()]).await
    }

    pub(super) async fn version(
        &self,
        subject: &str,
        version: i64,
    ) -> Result<SchemaAnswer, RegistryError> {
        self.get(&["subjects", subject, "versions", &version.to_string()]).await
    }

    pub(super) async fn latest(&self, subject: &str) -> Result<u32, RegistryError> {
        let latest: IdAnswer = self.get(&["subjects", subject, "versions", "latest"]).await?;
        Ok(latest.id)
    }

    pub(super) async fn find(
        &self,
        subject: &str,
        schema_type: &str,
        schema: &str,
    ) -> Result<u32, RegistryError> {
        let found: IdAnswer = self.post(&["subjects", subject], schema_type, schema).await?;
        Ok(found.id)
    }

    pub(super) async fn register(
        &self,
        subject: &str,
        schema_type: &str,
        schema: &str,
    ) -> Result<u32, RegistryError> {
        let path = ["subjects", subject, "versions"];
        let registered: IdAnswer = self.post(&path, schema_type, schema).await?;
        Ok(registered.id)
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, RegistryError> {
        self.answer(self.request(Method::GET, path), path).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        schema_type: &str,
        schema: &str,
    ) -> Result<T, RegistryError> {
        let body = serde_json::json!({"schemaType": schema_type, "schema": schema}).to_string();
        let request = self.request(Method::POST, path).header(CONTENT_TYPE, JSON).body(body);
        self.answer(request, path).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.url.clone();
        url.path_segments_mut().expect("an http url has a path").pop_if_empty().extend(path);
        let request = self.http.request(method, url).header(ACCEPT, JSON);
        match &self.login {
            Some(login) => request.header(AUTHORIZATION, login.clone()),
            None => request,
        }
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        path: &[&str],
    ) -> Result<T, RegistryError> {
        let unavailable = |why: String, next: &str| {
            let what = path.join("/");
            RegistryError::Unavailable(format!(
                "cannot read {what} of the schema registry at {self}: {why}; {next}"
            ))
        };
        let check = "check `registry_url`, and that the registry is running";
        let response = request.send().await;
        let mut response = response.map_err(|error| {
            let why = cause(&error);
            let next = if is_of_certificate(&why) { CHECK_TLS } else { check };
            unavailable(why, next)
        })?;
        let status = response.status();
        let body = read(&mut response).await.map_err(|why| unavailable(why, check))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                unavailable(format!("its answer has another form ({error})"), check)
            });
        }
        let error: ErrorAnswer = serde_json::from_slice(&body).unwrap_or_default();
        let message = error.message.unwrap_or_default();
        let message: String =
            message.chars().filter(|c| !c.is_control()).take(EXCERPT_MAX).collect();
        let why = format!("it answered {} {message}", status.as_u16()).trim_end().to_owned();
        Err(match (status, error.error_code) {
            (StatusCode::NOT_FOUND, Some(code)) if NOT_FOUND.contains(&code) => {
                let what = path.join("/");
                RegistryError::NotFound(format!(
                    "the schema registry at {self} has no {what} ({code} {message})"
                ))
            }
            (StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY, _) => {
                let what = path.join("/");
                RegistryError::Refused(format!(
                    "the schema registry at {self} refuses the schema for {what}: {why}; correct \
                     `schema_file`"
                ))
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => unavailable(
                why,
                "check `registry_user` and `registry_password`, or `registry_token`, and its rights",
            ),
            _ => unavailable(why, check),
        })
    }
}

impl fmt::Display for RegistryRequests {
    /// Writes the URL, which has no login and no query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

fn client(settings: &SchemaRegistrySettings, url: &Url) -> Result<Client, InvalidSettings> {
    let mut builder = Client::builder()
        .user_agent(concat!("relais/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .timeout(ANSWER_MAX)
        .connect_timeout(CONNECT_MAX)
        .pool_max_idle_per_host(1);
    if url.scheme() == "http" {
        // Without TLS it must work on machines without root certificates.
        builder = builder.tls_certs_only([]);
    } else if let Some(path) = &settings.tls_ca {
        let wrong = |why: String| {
            format!("cannot read {}: {why}; correct `registry_tls_ca`", path.display())
        };
        let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let authorities =
            Certificate::from_pem_bundle(&pem).map_err(|error| wrong(error.to_string()))?;
        if authorities.is_empty() {
            return Err(wrong("it has no certificate".to_owned()).into());
        }
        builder = builder.tls_certs_only(authorities);
    }
    builder.build().map_err(|error| {
        InvalidSettings::new(format!(
            "cannot build the client of the schema registry: {}; https needs the root certificates \
             of the system, or `registry_tls_ca`",
            cause(&error)
        ))
    })
}

/// Returns whether the registry's certificate is not accepted.
fn is_of_certificate(cause: &str) -> bool {
    cause.contains("certificate")
}

/// Returns the innermost causes of an error; the outer text only repeats the URL.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", ANSWER_MAX.as_secs());
    }
    let mut causes = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    if causes.is_empty() { error.to_string() } else { causes.join(": ") }
}

async fn read(response: &mut Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| cause(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_MAX {
            return Err(format!("its answer is larger than {BODY_MAX} bytes"));
        }
    }
    Ok(body)
}
