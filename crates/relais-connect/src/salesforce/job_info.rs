//! The description of a bulk job by Salesforce.

use relais_core::{bulk::Remote, delivery::Delivery, time::Timestamp};
use serde::Deserialize;

use super::classify::{Class, Judge, SalesforceFailure, THROTTLE_PAUSE, same_code};

/// The fields of a job that are used here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobInfo {
    pub(super) id: String,
    pub(super) object: String,
    pub(super) state: String,
    pub(super) created_by_id: String,
    pub(super) created_date: String,
    pub(super) error_message: Option<String>,
    pub(super) number_records_processed: Option<u64>,
    pub(super) number_records_failed: Option<u64>,
}

/// A page of jobs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobPage {
    #[serde(default)]
    pub(super) records: Vec<JobInfo>,
    pub(super) next_records_url: Option<String>,
}

impl JobInfo {
    pub(super) fn remote(&self, judge: &Judge) -> Result<Remote, SalesforceFailure> {
        Ok(match self.state.as_str() {
            "Open" => Remote::Open,
            "UploadComplete" | "InProgress" => Remote::Running,
            "JobComplete" => Remote::Complete,
            "Failed" => Remote::Failed(self.failure(judge).problem),
            "Aborted" => Remote::Aborted,
            other => {
                let why = format!("the job {} is in an unknown state: {other:?}", self.id);
                return Err(SalesforceFailure::new(Class::Down, "JOB_STATE_UNKNOWN", &why));
            }
        })
    }

    /// Parses the reason of a failure: `InvalidBatch : Field name not found : X`.
    fn failure(&self, judge: &Judge) -> SalesforceFailure {
        let text = self.error_message.as_deref().unwrap_or("no reason was given");
        let (code, message) = text.split_once(':').unwrap_or(("JOB_FAILED", text));
        let (code, message) = (code.trim(), message.trim());
        let (class, after) = judge.class(code, message);
        let mut failure =
            SalesforceFailure::new(class, code, &format!("the job {}: {message}", self.id));
        failure.after = after;
        failure
    }

    /// Returns the delivery of rows that were not processed. They use no attempt. If the job failed
    /// half-way, or for a reason that no row can cause, the next job waits.
    pub(super) fn unprocessed(&self, judge: &Judge) -> Delivery {
        if self.state != "Failed" {
            return Delivery::Held;
        }
        let SalesforceFailure { class, problem, after, .. } = self.failure(judge);
        let is_header = problem.message.contains("Field name not found");
        let may_be_a_row = match class {
            Class::Quota | Class::Auth | Class::Down => false,
            Class::Settings => !is_header && !same_code(&problem.code, "INVALID_ENTITY"),
            _ => true,
        };
        if may_be_a_row && self.number_records_processed.unwrap_or(0) == 0 {
            return Delivery::Held;
        }
        Delivery::Outage { problem, after: after.or(Some(THROTTLE_PAUSE)) }
    }

    /// Returns the delivery of rows that are in no result file.
    pub(super) fn unmentioned(&self, judge: &Judge) -> Delivery {
        if self.state == "Failed" && self.number_records_processed.unwrap_or(0) == 0 {
            return self.unprocessed(judge);
        }
        let why =
            format!("the results of job {} do not contain the row; it is sent again", self.id);
        Delivery::retry("RESULT_MISSING", &why)
    }

    pub(super) fn succeeded(&self) -> u64 {
        let processed = self.number_records_processed.unwrap_or(0);
        processed.saturating_sub(self.number_records_failed.unwrap_or(0))
    }

    /// Parses `2022-01-02T21:33:43.000+0000`.
    pub(super) fn created_at(&self) -> Option<Timestamp> {
        let text = self.created_date.as_str();
        let plain = text.strip_suffix("+0000").map(|text| format!("{text}Z"));
        Timestamp::parse(plain.as_deref().unwrap_or(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        Judge { external_id: "ExternalId__c".into(), superseded: None }
    }

    fn job(state: &str, error: Option<&str>, processed: Option<u64>) -> JobInfo {
        JobInfo {
            id: "7501".into(),
            state: state.into(),
            error_message: error.map(str::to_owned),
            number_records_processed: processed,
            ..JobInfo::default()
        }
    }

    #[test]
    fn states_are_read() {
        let remote = |state| job(state, None, None).remote(&judge());
        assert_eq!(remote("Open"), Ok(Remote::Open));
        assert_eq!(remote("UploadComplete"), Ok(Remote::Running));
        assert_eq!(remote("InProgress"), Ok(Remote::Running));
        assert_eq!(remote("JobComplete"), Ok(Remote::Complete));
        assert_eq!(remote("Aborted"), Ok(Remote::Aborted));
        assert!(matches!(remote("Failed"), Ok(Remote::Failed(_))));
        assert!(remote("Paused").is_err());
        let text = "InvalidBatch : Field name not found : X__c";
        let Ok(Remote::Failed(problem)) = job("Failed", Some(text), None).remote(&judge()) else {
            panic!("failed")
        };
        assert_eq!(problem.code, "InvalidBatch");
        assert!(problem.message.ends_with("Field name not found : X__c"));
    }

    #[test]
    fn unprocessed_rows_use_no_attempt() {
        let unprocessed = |state, error| job(state, error, Some(3)).unprocessed(&judge());
        assert_eq!(unprocessed("JobComplete", None), Delivery::Held);
        assert_eq!(unprocessed("Aborted", None), Delivery::Held);
        for error in [
            "InvalidBatch : Field name not found : X",
            "INVALID_ENTITY : Nope__c",
            "ExceededQuota : ApiBatchItems Limit exceeded.",
        ] {
            let delivery = unprocessed("Failed", Some(error));
            assert!(matches!(delivery, Delivery::Outage { after: Some(_), .. }), "{error:?}");
        }
        // One of its rows may be the reason: they are sent again in smaller jobs.
        for error in [
            Some("ClientInputError : LineEnding is invalid on user data"),
            Some("InvalidBatch : Failed to parse a row"),
            Some("TooManyLockFailure : too many"),
            Some("InternalServerError : unknown"),
            Some("odd"),
            None,
        ] {
            let whole = job("Failed", error, Some(0)).unprocessed(&judge());
            assert_eq!(whole, Delivery::Held, "{error:?}");
            let half = unprocessed("Failed", error);
            assert!(matches!(half, Delivery::Outage { after: Some(_), .. }), "{error:?}");
        }
    }

    #[test]
    fn rows_in_no_result_have_an_unknown_outcome_unless_nothing_was_processed() {
        let unmentioned = |state, processed| job(state, Some("X : y"), processed);
        let delivery = unmentioned("JobComplete", Some(3)).unmentioned(&judge());
        assert!(matches!(delivery, Delivery::Retry { .. }));
        let delivery = unmentioned("Failed", Some(3)).unmentioned(&judge());
        assert!(matches!(delivery, Delivery::Retry { .. }));
        let delivery = unmentioned("Failed", None).unmentioned(&judge());
        assert_eq!(delivery, Delivery::Held);
    }

    #[test]
    fn times_of_jobs_are_read() {
        let at =
            |text: &str| JobInfo { created_date: text.into(), ..JobInfo::default() }.created_at();
        assert_eq!(at("2022-01-02T21:33:43.000+0000"), Timestamp::parse("2022-01-02T21:33:43Z"));
        assert_eq!(at("2022-01-02T21:33:43.000Z"), Timestamp::parse("2022-01-02T21:33:43Z"));
        assert_eq!(at(""), None);
    }
}
