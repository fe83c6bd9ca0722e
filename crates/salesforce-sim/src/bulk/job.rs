//! A bulk job: its request, its progress, and its description.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{
    csv::{Format, LineEnding},
    run::JobRun,
};
use crate::{
    clock::written,
    data::version::Version,
    faults::JobFault,
    id::Id,
    reply::ApiReply,
    schema::{Schema, SchemaObject},
    store::Operation,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Open,
    UploadComplete,
    InProgress,
    JobComplete,
    Failed,
    Aborted,
}

impl JobState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::UploadComplete => "UploadComplete",
            Self::InProgress => "InProgress",
            Self::JobComplete => "JobComplete",
            Self::Failed => "Failed",
            Self::Aborted => "Aborted",
        }
    }

    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::JobComplete | Self::Failed | Self::Aborted)
    }
}

/// The validated request of the client.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) object: Arc<SchemaObject>,
    pub(crate) operation: Operation,
    operation_name: String,
    external_id: Option<String>,
    delimiter_name: &'static str,
    pub(crate) format: Format,
    assignment_rule: Option<String>,
}

#[derive(Debug)]
pub(crate) struct IngestJob {
    pub(crate) id: Id,
    pub(crate) spec: Spec,
    pub(crate) user: Id,
    pub(crate) version: Version,
    pub(crate) created: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) state: JobState,
    pub(crate) upload: Option<Bytes>,
    pub(crate) uploads: u32,
    pub(crate) fault: JobFault,
    /// Stopped by a fault.
    pub(crate) is_stuck: bool,
    /// When the engine may take the next step.
    pub(crate) due: Instant,
    pub(crate) retries: u32,
    pub(crate) started: Option<Timestamp>,
    pub(crate) error: Option<String>,
    /// Present since processing started. Shared with results that are being sent.
    pub(crate) run: Option<Arc<JobRun>>,
}

const DELIMITERS: [(&str, u8); 6] = [
    ("COMMA", b','),
    ("TAB", b'\t'),
    ("SEMICOLON", b';'),
    ("PIPE", b'|'),
    ("CARET", b'^'),
    ("BACKQUOTE", b'`'),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobRequest {
    object: String,
    operation: String,
    external_id_field_name: Option<String>,
    content_type: Option<String>,
    column_delimiter: Option<String>,
    line_ending: Option<String>,
    assignment_rule_id: Option<String>,
    /// Accepted and ignored: there is only one mode.
    #[serde(rename = "concurrencyMode")]
    _concurrency_mode: Option<String>,
}

impl Spec {
    pub(super) fn parse(schema: &Schema, json: Json) -> Result<Self, ApiReply> {
        let invalid = |message: &str| ApiReply::error(400, "INVALIDJOB", message);
        let request: JobRequest =
            serde_json::from_value(json).map_err(|error| ApiReply::bad_json(&error.to_string()))?;
        let object = schema.object(&request.object).ok_or_else(|| {
            let message = format!("Entity '{}' is not supported by the Bulk API.", request.object);
            ApiReply::error(400, "INVALIDENTITY", &message)
        })?;
        let operation = operation(object, &request)?;
        if request.content_type.as_ref().is_some_and(|kind| kind != "CSV") {
            return Err(invalid("Unsupported content type: only CSV is supported"));
        }
        let (delimiter_name, delimiter) = delimiter(request.column_delimiter.as_deref())?;
        let ending = line_ending(request.line_ending.as_deref())?;
        Ok(Self {
            object: Arc::clone(object),
            operation,
            operation_name: request.operation,
            external_id: request.external_id_field_name,
            delimiter_name,
            format: Format { delimiter, ending },
            assignment_rule: request.assignment_rule_id,
        })
    }

    pub(crate) fn operation_name(&self) -> &str {
        &self.operation_name
    }
}

pub(super) fn delimiter(wanted: Option<&str>) -> Result<(&'static str, u8), ApiReply> {
    let wanted = wanted.unwrap_or("COMMA");
    let known = DELIMITERS.iter().find(|(name, _)| *name == wanted).copied();
    known.ok_or_else(|| {
        ApiReply::error(400, "INVALIDJOB", &format!("Invalid columnDelimiter: {wanted}"))
    })
}

pub(super) fn line_ending(wanted: Option<&str>) -> Result<LineEnding, ApiReply> {
    match wanted.unwrap_or("LF") {
        "LF" => Ok(LineEnding::Lf),
        "CRLF" => Ok(LineEnding::Crlf),
        other => Err(ApiReply::error(400, "INVALIDJOB", &format!("Invalid lineEnding: {other}"))),
    }
}

fn operation(object: &SchemaObject, request: &JobRequest) -> Result<Operation, ApiReply> {
    let invalid = |message: String| ApiReply::error(400, "INVALIDJOB", &message);
    match request.operation.as_str() {
        "insert" => Ok(Operation::Insert),
        "update" => Ok(Operation::Update),
        "delete" | "hardDelete" => Ok(Operation::Delete),
        "upsert" => {
            let name = request.external_id_field_name.as_deref().unwrap_or_default();
            if name.is_empty() {
                return Err(invalid(format!(
                    "External ID was blank for {}. An External ID must be specified for upsert.",
                    object.name
                )));
            }
            let field = object.field(name).filter(|field| object.fields[*field].is_key());
            field.map(Operation::Upsert).ok_or_else(|| {
                invalid(format!("External ID field {name} not found in {}", object.name))
            })
        }
        other => Err(invalid(format!("Unknown operation: {other}"))),
    }
}

impl IngestJob {
    pub(super) fn new(id: Id, spec: Spec, user: Id, version: Version, now: Timestamp) -> Self {
        Self {
            id,
            spec,
            user,
            version,
            created: now,
            modified: now,
            state: JobState::Open,
            upload: None,
            uploads: 0,
            fault: JobFault::default(),
            is_stuck: false,
            due: Instant::now(),
            retries: 0,
            started: None,
            error: None,
            run: None,
        }
    }

    pub(crate) fn enter(&mut self, state: JobState, now: Timestamp) {
        self.state = state;
        self.modified = now;
    }

    /// Returns the number of rows that were tried, and of those that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.run.as_ref().map_or((0, 0), |run| (run.processed, run.failed))
    }

    /// Returns the response to a close or an abort.
    pub(super) fn brief(&self) -> Json {
        let mut json = json!({
            "id": self.id,
            "operation": self.spec.operation_name,
            "object": self.spec.object.name,
            "createdById": self.user,
            "createdDate": written(self.created),
            "systemModstamp": written(self.modified),
            "state": self.state.name(),
            "concurrencyMode": "Parallel",
            "contentType": "CSV",
            "apiVersion": self.version.number(),
        });
        if let Some(field) = &self.spec.external_id {
            json["externalIdFieldName"] = field.as_str().into();
        }
        if let Some(rule) = &self.spec.assignment_rule {
            json["assignmentRuleId"] = rule.as_str().into();
        }
        json
    }

    /// Returns the response to a create.
    pub(super) fn opened(&self) -> Json {
        let mut json = self.brief();
        json["lineEnding"] = self.spec.format.ending.name().into();
        json["columnDelimiter"] = self.spec.delimiter_name.into();
        if self.state == JobState::Open {
            let url = format!("services/data/{}/jobs/ingest/{}/batches", self.version, self.id);
            json["contentUrl"] = url.into();
        }
        json
    }

    /// Returns the full description.
    pub(crate) fn info(&self) -> Json {
        let mut json = self.opened();
        json["jobType"] = "V2Ingest".into();
        json["retries"] = self.retries.into();
        let took = self.started.map_or(0, |started| {
            self.modified.duration_since(started).as_millis().clamp(0, 1 << 53)
        });
        for name in ["totalProcessingTime", "apiActiveProcessingTime"] {
            json[name] = json!(took as i64);
        }
        json["apexProcessingTime"] = 0.into();
        if !matches!(self.state, JobState::Open | JobState::UploadComplete) {
            let (processed, failed) = self.counts();
            json["numberRecordsProcessed"] = processed.into();
            json["numberRecordsFailed"] = failed.into();
        }
        if let Some(error) = &self.error {
            json["errorMessage"] = error.as_str().into();
        }
        json
    }
}
