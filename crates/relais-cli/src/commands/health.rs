//! `relais health`: checks the running relais, for supervisors and containers without an HTTP client.
//!
//! Exit codes: 0 healthy, 1 not healthy or no answer, 2 unknown address.

use std::time::Duration;

use reqwest::{Client, Url};
use serde_json::{Value, json};

use super::{CommandContext, status::guards::reachable};
use crate::{
    args::HealthArgs,
    failure::{CommandError, Done},
    settings::scheme,
};

/// Largest accepted response.
const ANSWER_MAX: u64 = 64 * 1024;

pub(crate) async fn health(context: &CommandContext, args: &HealthArgs) -> Done {
    let url = address(context, args)?;
    let answer = ask(url.clone(), args.timeout).await;
    let healthy = answer.as_ref().is_ok_and(|answer| answer.healthy);
    if context.output.json {
        let detail =
            answer.unwrap_or_else(|error| HealthResponse { healthy, detail: json!(error) }).detail;
        let result = json!({ "healthy": healthy, "url": url.as_str(), "detail": detail });
        context.output.print_json(&result)?;
        return if healthy { Ok(()) } else { Err(CommandError::Printed) };
    }
    match answer {
        Ok(answer) if answer.healthy => {
            let word = if args.ready { "ready" } else { "alive" };
            context.output.print(&format!("{word}: {url}"))
        }
        Ok(answer) => {
            let reason = answer.detail["reason"].as_str().unwrap_or("no reason is given");
            Err(CommandError::Failed(format!("not healthy: {url}: {reason}")))
        }
        Err(error) => Err(CommandError::Failed(format!(
            "cannot reach {url}: {error}; check that relais is running with [admin] at this address"
        ))),
    }
}

/// The response of the running relais.
struct HealthResponse {
    healthy: bool,
    /// The JSON body, or the status if the body is not JSON.
    detail: Value,
}

fn address(context: &CommandContext, args: &HealthArgs) -> Result<Url, CommandError> {
    let base = match &args.url {
        Some(url) => url.clone(),
        None => {
            let (settings, _) = context.settings()?;
            let Some(admin) = settings.admin else {
                return Err(CommandError::Usage(
                    "cannot check the health: the configuration has no [admin]; add it, or pass --url URL"
                        .to_owned(),
                ));
            };
            if admin.listen.port() == 0 {
                return Err(CommandError::Usage(
                    "cannot check the health: `admin.listen` has port 0, so the port is unknown; pass --url URL"
                        .to_owned(),
                ));
            }
            format!("{}://{}", scheme(admin.tls_certificate.as_ref()), reachable(admin.listen))
        }
    };
    let path = if args.ready { "readyz" } else { "healthz" };
    let url = Url::parse(&format!("{}/{path}", base.trim_end_matches('/')));
    url.map_err(|error| {
        CommandError::Usage(format!("--url is not a URL: {error}; pass http://HOST:PORT"))
    })
}

async fn ask(url: Url, within: Duration) -> Result<HealthResponse, String> {
    // The certificate is for a name, and this is an address. The request holds no secret, and a false answer
    // does no harm.
    let client = Client::builder().no_proxy().timeout(within).tls_danger_accept_invalid_certs(true);
    let client = client.build();
    let client = client.map_err(|error| root(&error))?;
    let answer = client.get(url).send().await.map_err(|error| root(&error))?;
    let status = answer.status();
    if answer.content_length().is_none_or(|length| length > ANSWER_MAX) {
        return Err(format!("the response ({status}) is not one of relais"));
    }
    let body = answer.bytes().await.map_err(|error| root(&error))?;
    let detail = serde_json::from_slice(&body).unwrap_or_else(|_| json!(status.as_str()));
    Ok(HealthResponse { healthy: status.is_success(), detail })
}

/// Returns the innermost cause, because the outer ones repeat the URL.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}
