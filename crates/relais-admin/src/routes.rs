//! The table of API routes: method, path, role, handler and OpenAPI text.
//!
//! Invariant: the router is built from this table only, so every route has a role and is listed in
//! `/api/openapi.json`.

mod decisions;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::Method,
    middleware::from_fn_with_state,
    routing::{MethodRouter, get, post},
};

use crate::{
    Admin, Role, access,
    api::{
        self, audit, configuration, controls, destinations, explain, inbox, live, outbox, overview,
        serde_errors, session,
    },
};

/// The path prefix of all routes.
pub(crate) const PREFIX: &str = "/api/v1";
/// Largest body of a decision.
const BODY_MAX: usize = 64 << 10;
/// Largest body of a decision that carries a payload.
const PAYLOAD_BODY_MAX: usize = 16 << 20;

/// One route of the API.
pub(crate) struct ApiRoute {
    pub(crate) method: Method,
    /// Under [`PREFIX`].
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    serve: MethodRouter<Admin>,
    body_max: usize,
    pub(crate) doc: RouteDoc,
}

/// The OpenAPI text of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteDoc {
    pub(crate) summary: &'static str,
    /// Names of parameters, which are defined in `openapi.json`.
    pub(crate) query: &'static [&'static str],
    /// Name of the schema of the body.
    pub(crate) body: Option<&'static str>,
    pub(crate) success: SuccessBody,
}

/// The body of a successful response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuccessBody {
    /// JSON by the schema of this name.
    Json(&'static str),
    Text,
    /// A payload, sent as a file.
    File,
    /// Server-sent events.
    Events,
}

impl ApiRoute {
    fn get(
        path: &'static str,
        serve: MethodRouter<Admin>,
        summary: &'static str,
        success: SuccessBody,
    ) -> Self {
        let doc = RouteDoc { summary, query: &[], body: None, success };
        // Other responses hide payloads and headers from a monitor field by field.
        let role = if success == SuccessBody::File { Role::Viewer } else { Role::Monitor };
        Self { method: Method::GET, path, role, serve, body_max: BODY_MAX, doc }
    }

    fn post(
        path: &'static str,
        role: Role,
        serve: MethodRouter<Admin>,
        summary: &'static str,
        (body, success): (&'static str, &'static str),
    ) -> Self {
        let success = SuccessBody::Json(success);
        let doc = RouteDoc { summary, query: &[], body: Some(body), success };
        Self { method: Method::POST, path, role, serve, body_max: BODY_MAX, doc }
    }

    fn query(mut self, names: &'static [&'static str]) -> Self {
        self.doc.query = names;
        self
    }

    fn carries_payload(mut self) -> Self {
        self.body_max = PAYLOAD_BODY_MAX;
        self
    }
}

/// Returns all routes.
pub(crate) fn table() -> Vec<ApiRoute> {
    [
        overviews(),
        controls(),
        inbox_rows(),
        outbox_rows(),
        undecodable(),
        decisions::dead_letter_routes(),
        decisions::key_and_process_routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Builds the router from the table. Unknown paths (404) and methods (405) are answered before the role is
/// checked.
pub(crate) fn router() -> Router<Admin> {
    let mut router = Router::new();
    for route in table() {
        let guard = from_fn_with_state(route.role, access::guard);
        let serve = route.serve.layer(DefaultBodyLimit::max(route.body_max)).route_layer(guard);
        router = router.route(route.path, serve);
    }
    router.fallback(api::nothing_here).method_not_allowed_fallback(api::wrong_method)
}

fn overviews() -> Vec<ApiRoute> {
    use SuccessBody::{Events, Json};
    let summary = "Returns the effective configuration, without secrets";
    let configuration = |path, serve| ApiRoute::get(path, serve, summary, Json("Configuration"));
    vec![
        ApiRoute::get("/session", get(session::show), "Returns the session", Json("Session")),
        ApiRoute::get("/overview", get(overview::show), "Returns the state", Json("Overview")),
        ApiRoute::get(
            "/history",
            get(overview::history),
            "Returns the figures of the last 15 minutes",
            Json("History"),
        ),
        ApiRoute::get("/live", get(live::live), "Streams overview and samples", Events),
        ApiRoute::get(
            "/destinations",
            get(destinations::list),
            "Lists destinations with the figures of all processes together",
            Json("Destinations"),
        ),
        configuration("/destinations/{name}/configuration", get(configuration::of_destination)),
        configuration("/sources/{name}/configuration", get(configuration::of_source)),
        ApiRoute::get(
            "/explain/{*id}",
            get(explain::explain),
            "Returns the history of a message, a process or a dead letter",
            Json("Explanation"),
        ),
        ApiRoute::get(
            "/audit",
            get(audit::list),
            "Lists actions of operators, newest first",
            Json("AuditPage"),
        )
        .query(&["actor", "target", "before_number", "limit"]),
    ]
}

/// Changes that operators make while relais runs; they apply in every process.
fn controls() -> Vec<ApiRoute> {
    let pauses = [
        ("/destinations/{name}/pause", post(controls::pause_destination), "Pauses deliveries"),
        ("/destinations/{name}/resume", post(controls::resume_destination), "Resumes deliveries"),
        (
            "/destinations/{name}/reset-breaker",
            post(controls::reset_breaker),
            "Closes the circuit breaker",
        ),
        ("/sources/{name}/pause", post(controls::pause_source), "Pauses reception"),
        ("/sources/{name}/resume", post(controls::resume_source), "Resumes reception"),
        ("/process-types/{name}/pause", post(controls::pause_process_type), "Pauses processes"),
        ("/process-types/{name}/resume", post(controls::resume_process_type), "Resumes processes"),
    ];
    let summary = "Changes rate and concurrency in all processes, until they are reset";
    let limit = ApiRoute::post(
        "/destinations/{name}/limit",
        Role::Operator,
        post(controls::limit_destination),
        summary,
        ("Limits", "Controlled"),
    );
    let route = |(path, serve, summary)| {
        ApiRoute::post(path, Role::Operator, serve, summary, ("Who", "Controlled"))
    };
    pauses.into_iter().map(route).chain([limit]).collect()
}

fn inbox_rows() -> Vec<ApiRoute> {
    use SuccessBody::{File, Json};
    vec![
        ApiRoute::get(
            "/inbox",
            get(inbox::list),
            "Lists inbox rows, newest first",
            Json("InboxPage"),
        )
        .query(&[
            "inbox_status",
            "type",
            "key",
            "source",
            "code",
            "since_seconds",
            "before_number",
            "limit",
        ]),
        ApiRoute::get("/inbox/{id}", get(inbox::show), "Returns an inbox row", Json("InboxShown")),
        ApiRoute::get(
            "/inbox/{id}/payload",
            get(inbox::payload),
            "Returns the whole payload",
            File,
        ),
        ApiRoute::post(
            "/inbox/{id}/retry",
            Role::Operator,
            post(inbox::retry),
            "Retries a failed inbox row",
            ("Who", "Done"),
        ),
    ]
}

fn outbox_rows() -> Vec<ApiRoute> {
    use SuccessBody::{File, Json};
    vec![
        ApiRoute::get(
            "/outbox",
            get(outbox::list),
            "Lists outbox rows, newest first",
            Json("OutboxPage"),
        )
        .query(&[
            "outbox_status",
            "type",
            "key",
            "destination",
            "code",
            "since_seconds",
            "before_number",
            "limit",
        ]),
        ApiRoute::get(
            "/outbox/{id}",
            get(outbox::show),
            "Returns an outbox row",
            Json("OutboxShown"),
        ),
        ApiRoute::get(
            "/outbox/{id}/payload",
            get(outbox::payload),
            "Returns the whole payload",
            File,
        ),
        ApiRoute::post(
            "/outbox/{id}/retry",
            Role::Operator,
            post(outbox::retry),
            "Retries a failed outbox row, or sends a pending one now that waits in backoff",
            ("Who", "Done"),
        ),
        ApiRoute::post(
            "/outbox/{id}/fail",
            Role::Operator,
            post(outbox::fail),
            "Turns a pending outbox row into a dead letter",
            ("Who", "Done"),
        ),
    ]
}

fn undecodable() -> Vec<ApiRoute> {
    use SuccessBody::Json;
    vec![
        ApiRoute::get(
            "/serde-errors",
            get(serde_errors::list),
            "Lists undecodable inbox rows, newest first",
            Json("SerdeErrorPage"),
        )
        .query(&["source", "code", "key", "since_seconds", "before_number", "limit"]),
        ApiRoute::get(
            "/serde-errors/{row}",
            get(serde_errors::show),
            "Returns an undecodable row with its bytes",
            Json("SerdeErrorShown"),
        ),
        ApiRoute::post(
            "/serde-errors/repair",
            Role::Operator,
            post(serde_errors::repair_many),
            "Reprocesses the undecodable rows that match",
            ("RepairMany", "RepairedMany"),
        ),
        ApiRoute::post(
            // With a corrected payload it needs the role admin.
            "/serde-errors/{row}/repair",
            Role::Operator,
            post(serde_errors::repair),
            "Reprocesses an undecodable row, on request with a corrected payload",
            ("Repair", "Repaired"),
        )
        .carries_payload(),
        ApiRoute::post(
            "/serde-errors/{row}/discard",
            Role::Operator,
            post(serde_errors::discard),
            "Discards an undecodable row",
            ("Who", "Done"),
        ),
    ]
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
