//! The routes of dead letters, parked keys and processes.

use axum::routing::{get, post};

use super::{ApiRoute, SuccessBody};
use crate::{
    Role,
    api::{bulk, dead_letters, parked_keys, processes},
};

pub(super) fn dead_letter_routes() -> Vec<ApiRoute> {
    use SuccessBody::{File, Json};
    vec![
        ApiRoute::get(
            "/dead-letters",
            get(dead_letters::list),
            "Lists dead letters, newest first",
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
        ApiRoute::get(
            "/dead-letters/{uuid}",
            get(dead_letters::show),
            "Returns a dead letter with its attempts and its parked key",
            Json("DeadLetterShown"),
        ),
        ApiRoute::get(
            "/dead-letters/{uuid}/payload",
            get(dead_letters::payload),
            "Returns the payload",
            File,
        ),
        ApiRoute::post(
            "/dead-letters/{uuid}/edit",
            Role::Admin,
            post(dead_letters::edit),
            "Validates and saves another payload",
            ("Edit", "Done"),
        )
        .carries_payload(),
        ApiRoute::post(
            "/dead-letters/{uuid}/replay",
            Role::Operator,
            post(dead_letters::replay),
            "Retries a dead letter, ahead of other messages of its key",
            ("Who", "Done"),
        ),
        ApiRoute::post(
            "/dead-letters/{uuid}/discard",
            Role::Operator,
            post(dead_letters::discard),
            "Discards a dead letter; delivery of its key continues",
            ("Who", "Done"),
        ),
        ApiRoute::post(
            "/dead-letters/replay",
            Role::Operator,
            post(bulk::replay),
            "Retries the dead letters that match, oldest message first",
            ("Many", "DecidedMany"),
        ),
        ApiRoute::post(
            "/dead-letters/discard",
            Role::Admin,
            post(bulk::discard),
            "Discards the dead letters that match",
            ("Many", "DecidedMany"),
        ),
    ]
}

pub(super) fn key_and_process_routes() -> Vec<ApiRoute> {
    use SuccessBody::{Json, Text};
    vec![
        ApiRoute::get(
            "/parked-keys",
            get(parked_keys::list),
            "Lists parked keys, longest parked first",
            Json("ParkedKeyPage"),
        )
        .query(&["limit"]),
        ApiRoute::post(
            "/parked-keys/release",
            Role::Operator,
            post(parked_keys::release),
            "Retries all dead letters of a key in order",
            ("Key", "Summary"),
        ),
        ApiRoute::post(
            "/parked-keys/skip",
            Role::Operator,
            post(parked_keys::skip),
            "Discards all dead letters of a key",
            ("Key", "Summary"),
        ),
        ApiRoute::get(
            "/processes",
            get(processes::list),
            "Lists processes, newest first",
            Json("ProcessPage"),
        )
        .query(&["process_status", "type", "key", "since_seconds", "before_uuid", "limit"]),
        ApiRoute::get(
            "/processes/{process}",
            get(processes::show),
            "Returns a process with its steps and possible actions",
            Json("ProcessShown"),
        ),
        ApiRoute::get(
            "/processes/{process}/log",
            get(processes::log),
            "Lists the log entries of a process, newest first",
            Json("LogPage"),
        )
        .query(&["before_number", "limit"]),
        ApiRoute::get(
            "/processes/{process}/diagram",
            get(processes::diagram),
            "Returns the definition as a Mermaid diagram",
            Text,
        ),
        ApiRoute::post(
            "/processes/{process}/{action}",
            Role::Operator,
            post(processes::act),
            "Pauses, resumes, retries, skips, compensates or cancels a process",
            ("Who", "Process"),
        ),
    ]
}
