//! Every call of the API: its method, its path, who may make it, and what the description says of it.
//!
//! Invariant: the router is made from this table and from nothing else, so no call is without a role and
//! none is missing from `/api/openapi.json`.

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
        self, audit, bulk, configuration, controls, dead_letters, destinations, explain, inbox,
        live, outbox, overview, parked_keys, processes, serde_errors, session,
    },
};

/// Where the calls are.
pub(crate) const PREFIX: &str = "/api/v1";
/// Largest body of a decision, and of one that carries a payload.
const BODY_MAX: usize = 64 << 10;
const PAYLOAD_BODY_MAX: usize = 16 << 20;

/// One call.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Under [`PREFIX`].
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    serve: MethodRouter<Admin>,
    body_max: usize,
    pub(crate) doc: Doc,
}

/// What the description says of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doc {
    pub(crate) says: &'static str,
    /// Names of parameters; what each may be is in the description's components.
    pub(crate) query: &'static [&'static str],
    /// Name of the schema of the body.
    pub(crate) body: Option<&'static str>,
    pub(crate) gives: Gives,
}

/// What a success carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// JSON by the schema of this name.
    Json(&'static str),
    Text,
    /// A payload to be kept as a file.
    File,
    /// Server-sent events.
    Events,
}

impl Route {
    fn get(
        path: &'static str,
        serve: MethodRouter<Admin>,
        says: &'static str,
        gives: Gives,
    ) -> Self {
        let doc = Doc { says, query: &[], body: None, gives };
        // What else carries a payload is hidden from a monitor field by field.
        let role = if gives == Gives::File { Role::Viewer } else { Role::Monitor };
        Self { method: Method::GET, path, role, serve, body_max: BODY_MAX, doc }
    }

    fn post(
        path: &'static str,
        role: Role,
        serve: MethodRouter<Admin>,
        says: &'static str,
        (body, gives): (&'static str, &'static str),
    ) -> Self {
        let doc = Doc { says, query: &[], body: Some(body), gives: Gives::Json(gives) };
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

/// The calls.
pub(crate) fn table() -> Vec<Route> {
    [at_a_glance(), switches(), rows(), unreadable(), letters(), keys_and_processes()]
        .into_iter()
        .flatten()
        .collect()
}

/// The router of the table. What is unknown, or there for another method, is said before anything else
/// about the request is judged.
pub(crate) fn router() -> Router<Admin> {
    let mut router = Router::new();
    for route in table() {
        let guard = from_fn_with_state(route.role, access::guard);
        let serve = route.serve.layer(DefaultBodyLimit::max(route.body_max)).route_layer(guard);
        router = router.route(route.path, serve);
    }
    router.fallback(api::nothing_here).method_not_allowed_fallback(api::wrong_method)
}

fn at_a_glance() -> Vec<Route> {
    use Gives::{Events, Json};
    let says = "Its effective configuration, without secrets";
    let configuration = |path, serve| Route::get(path, serve, says, Json("Configuration"));
    vec![
        Route::get("/session", get(session::show), "Who is asking, and as what", Json("Session")),
        Route::get("/overview", get(overview::show), "Everything at a glance", Json("Overview")),
        Route::get("/history", get(overview::history), "The last 15 minutes", Json("History")),
        Route::get("/live", get(live::live), "Overview and samples as they change", Events),
        Route::get(
            "/destinations",
            get(destinations::list),
            "Each destination, as all processes together see it",
            Json("Destinations"),
        ),
        configuration("/destinations/{name}/configuration", get(configuration::of_destination)),
        configuration("/sources/{name}/configuration", get(configuration::of_source)),
        Route::get(
            "/explain/{*id}",
            get(explain::explain),
            "What became of a message, a process or a dead letter",
            Json("Explanation"),
        ),
        Route::get("/audit", get(audit::list), "Who did what, newest first", Json("AuditPage"))
            .query(&["actor", "target", "before_number", "limit"]),
    ]
}

/// What operators change while relais runs: in every process.
fn switches() -> Vec<Route> {
    let pauses = [
        ("/destinations/{name}/pause", post(controls::pause_destination), "Pauses deliveries"),
        ("/destinations/{name}/resume", post(controls::resume_destination), "Continues deliveries"),
        ("/destinations/{name}/reset-breaker", post(controls::reset_breaker), "Closes its breaker"),
        ("/sources/{name}/pause", post(controls::pause_source), "Pauses reception"),
        ("/sources/{name}/resume", post(controls::resume_source), "Continues reception"),
        ("/process-types/{name}/pause", post(controls::pause_process_type), "Pauses processes"),
        (
            "/process-types/{name}/resume",
            post(controls::resume_process_type),
            "Continues processes",
        ),
    ];
    let says = "Changes rate and concurrency in every process, until that restarts";
    let limit = Route::post(
        "/destinations/{name}/limit",
        Role::Operator,
        post(controls::limit_destination),
        says,
        ("Limits", "Controlled"),
    );
    let route =
        |(path, serve, says)| Route::post(path, Role::Operator, serve, says, ("Who", "Controlled"));
    pauses.into_iter().map(route).chain([limit]).collect()
}

fn rows() -> Vec<Route> {
    use Gives::{File, Json};
    vec![
        Route::get("/inbox", get(inbox::list), "Inbox rows, newest first", Json("InboxPage"))
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
        Route::get("/inbox/{id}", get(inbox::show), "One inbox row", Json("InboxShown")),
        Route::get("/inbox/{id}/payload", get(inbox::payload), "Its whole payload", File),
        Route::post(
            "/inbox/{id}/retry",
            Role::Operator,
            post(inbox::retry),
            "Tries a failed inbox row again",
            ("Who", "Done"),
        ),
        Route::get("/outbox", get(outbox::list), "Outbox rows, newest first", Json("OutboxPage"))
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
        Route::get("/outbox/{id}", get(outbox::show), "One outbox row", Json("OutboxShown")),
        Route::get("/outbox/{id}/payload", get(outbox::payload), "Its whole payload", File),
        Route::post(
            "/outbox/{id}/retry",
            Role::Operator,
            post(outbox::retry),
            "Tries a failed outbox row again",
            ("Who", "Done"),
        ),
        Route::post(
            "/outbox/{id}/fail",
            Role::Operator,
            post(outbox::fail),
            "Makes a dead letter of a pending outbox row",
            ("Who", "Done"),
        ),
    ]
}

fn unreadable() -> Vec<Route> {
    use Gives::Json;
    vec![
        Route::get(
            "/serde-errors",
            get(serde_errors::list),
            "Inbox rows nobody could read, newest first",
            Json("SerdeErrorPage"),
        )
        .query(&["source", "code", "key", "since_seconds", "before_number", "limit"]),
        Route::get(
            "/serde-errors/{row}",
            get(serde_errors::show),
            "One of them, with its bytes",
            Json("SerdeErrorShown"),
        ),
        Route::post(
            "/serde-errors/repair",
            Role::Operator,
            post(serde_errors::repair_many),
            "Reads those that match again after a fix",
            ("RepairMany", "RepairedMany"),
        ),
        Route::post(
            // With a payload written by a person it takes an admin.
            "/serde-errors/{row}/repair",
            Role::Operator,
            post(serde_errors::repair),
            "Reads one again after a fix, or puts a payload written by a person in its place",
            ("Repair", "Repaired"),
        )
        .carries_payload(),
        Route::post(
            "/serde-errors/{row}/discard",
            Role::Operator,
            post(serde_errors::discard),
            "Closes one that nobody can repair",
            ("Who", "Done"),
        ),
    ]
}

fn letters() -> Vec<Route> {
    use Gives::{File, Json};
    vec![
        Route::get(
            "/dead-letters",
            get(dead_letters::list),
            "Dead letters, newest first",
            Json("DeadLetterPage"),
        )
        .query(&[
            "letter_status",
            "type",
            "key",
            "destination",
            "source",
            "code",
            "since_seconds",
            "before_uuid",
            "limit",
        ]),
        Route::get(
            "/dead-letters/{uuid}",
            get(dead_letters::show),
            "One, with its attempts and its key",
            Json("DeadLetterShown"),
        ),
        Route::get("/dead-letters/{uuid}/payload", get(dead_letters::payload), "Its payload", File),
        Route::post(
            "/dead-letters/{uuid}/edit",
            Role::Admin,
            post(dead_letters::edit),
            "Gives it another payload, after a rehearsal",
            ("Edit", "Done"),
        )
        .carries_payload(),
        Route::post(
            "/dead-letters/{uuid}/replay",
            Role::Operator,
            post(dead_letters::replay),
            "Tries it again, first in its key",
            ("Who", "Done"),
        ),
        Route::post(
            "/dead-letters/{uuid}/discard",
            Role::Operator,
            post(dead_letters::discard),
            "Leaves it failed and lets its key go on",
            ("Who", "Done"),
        ),
        Route::post(
            "/dead-letters/replay",
            Role::Operator,
            post(bulk::replay),
            "Tries those that match again, the oldest message first",
            ("Many", "DecidedMany"),
        ),
        Route::post(
            "/dead-letters/discard",
            Role::Admin,
            post(bulk::discard),
            "Discards those that match",
            ("Many", "DecidedMany"),
        ),
    ]
}

fn keys_and_processes() -> Vec<Route> {
    use Gives::{Json, Text};
    vec![
        Route::get(
            "/parked-keys",
            get(parked_keys::list),
            "Keys held back, longest first",
            Json("ParkedKeyPage"),
        )
        .query(&["limit"]),
        Route::post(
            "/parked-keys/release",
            Role::Operator,
            post(parked_keys::release),
            "Replays everything dead of a key in order",
            ("Key", "Summary"),
        ),
        Route::post(
            "/parked-keys/skip",
            Role::Operator,
            post(parked_keys::skip),
            "Discards everything dead of a key",
            ("Key", "Summary"),
        ),
        Route::get("/processes", get(processes::list), "Newest first", Json("ProcessPage"))
            .query(&["process_status", "type", "key", "since_seconds", "before_uuid", "limit"]),
        Route::get(
            "/processes/{process}",
            get(processes::show),
            "One process, its steps and what can be done with it",
            Json("ProcessShown"),
        ),
        Route::get(
            "/processes/{process}/log",
            get(processes::log),
            "What happened to it, newest first",
            Json("LogPage"),
        )
        .query(&["before_number", "limit"]),
        Route::get(
            "/processes/{process}/diagram",
            get(processes::diagram),
            "A picture of its definition, in mermaid",
            Text,
        ),
        Route::post(
            "/processes/{process}/{action}",
            Role::Operator,
            post(processes::act),
            "Pauses, resumes, retries, skips, compensates or cancels",
            ("Who", "Process"),
        ),
    ]
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
