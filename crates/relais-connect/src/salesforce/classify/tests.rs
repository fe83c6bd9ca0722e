//! Every row of the table, and the consequence of each class.

use super::*;

fn judge() -> Judge {
    Judge { external_id: "ExternalId__c".into(), superseded: Some("older version".into()) }
}

fn class(code: &str, message: &str) -> Class {
    judge().class(code, message).0
}

/// Each class with matching codes and messages.
const LISTED: &[(Class, &[(&str, &str)])] = &[
    (
        Auth,
        &[
            ("INVALID_SESSION_ID", "Session expired or invalid"),
            ("INVALIDSESSIONID", "Session expired or invalid"),
            ("INVALID_AUTH_HEADER", "INVALID_HEADER_TYPE"),
            ("invalid_grant", "user hasn't approved this consumer"),
            ("invalid_client", "invalid client credentials"),
            ("invalid_client_id", "client identifier invalid"),
            ("inactive_user", "user is inactive"),
            ("inactive_org", "org is inactive"),
            ("TXN_SECURITY_NO_ACCESS", ""),
            ("TXN_SECURITY_TWO_FA_REQUIRED", ""),
            ("TXN_SECURITY_END_A_SESSION", ""),
            ("TXN_SECURITY_FAIL_CLOSE", ""),
            ("API_DISABLED_FOR_ORG", ""),
            ("API_CURRENTLY_DISABLED", ""),
            ("FUNCTIONALITY_NOT_ENABLED", ""),
            ("FEATURENOTENABLED", ""),
        ],
    ),
    (
        Quota,
        &[
            ("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded."),
            ("REQUEST_LIMIT_EXCEEDED", "ConcurrentPerOrgLongTxn Limit exceeded"),
            ("REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests Limit exceeded"),
            ("EXCEEDEDQUOTA", "ApiBatchItems Limit exceeded."),
            ("LIMIT_EXCEEDED", ""),
            ("STORAGE_LIMIT_EXCEEDED", "storage limit exceeded"),
            ("TXN_SECURITY_METERING_ERROR", "policies took too long"),
        ],
    ),
    (Down, &[("SERVER_UNAVAILABLE", "try again")]),
    (
        Transient,
        &[
            ("UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access to this record"),
            ("TooManyLockFailure", ""),
            ("Timeout", ""),
            ("DUPLICATE_VALUE", "Duplicate external id specified: M-1"),
            (
                "DUPLICATE_VALUE",
                "duplicate value found: ExternalId__c duplicates value on record with id: 001",
            ),
            ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "T: UNABLE_TO_LOCK_ROW, unable to obtain"),
            ("CANNOT_EXECUTE_FLOW_TRIGGER", "unable to obtain exclusive access"),
            ("APEX_ERROR", "Too many retries of batch save in the presence of Apex triggers"),
            (
                "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY",
                "System.LimitException: Too many SOQL queries: 101",
            ),
            ("APEX_ERROR", "Apex CPU time limit exceeded"),
            ("UNKNOWN_EXCEPTION", "An unexpected error occurred. ErrorId: 1-2"),
            ("UNEXPECTED_ERROR", ""),
            ("QUERY_TIMEOUT", ""),
            ("REQUEST_RUNNING_TOO_LONG", ""),
            ("OPERATION_TOO_LARGE", ""),
            ("A_CODE_OF_NEXT_YEAR", "unlisted"),
        ],
    ),
    (
        Permanent,
        &[
            ("DUPLICATE_VALUE", "duplicate value found: Email__c duplicates value on record"),
            ("DUPLICATE_EXTERNAL_ID", "more than one record found for external id field"),
            ("DUPLICATES_DETECTED", "Use one of these records?"),
            ("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id"),
            ("MALFORMED_ID", ""),
            ("ENTITY_IS_DELETED", "entity is deleted"),
            ("INVALID_FIELD", "No such column 'X' on sobject of type Contact"),
            ("INVALID_FIELD_FOR_INSERT_UPDATE", ""),
            ("INVALID_TYPE", ""),
            ("INVALID_TYPE_ON_FIELD_IN_RECORD", ""),
            ("JSON_PARSER_ERROR", ""),
            ("MALFORMED_QUERY", ""),
            ("REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]"),
            ("STRING_TOO_LONG", ""),
            ("NUMBER_OUTSIDE_VALID_RANGE", ""),
            ("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", ""),
            ("INVALID_EMAIL_ADDRESS", ""),
            ("FIELD_INTEGRITY_EXCEPTION", ""),
            ("FIELD_FILTER_VALIDATION_EXCEPTION", ""),
            ("FIELD_CUSTOM_VALIDATION_EXCEPTION", "must be in the future"),
            ("INSUFFICIENT_ACCESS_OR_READONLY", ""),
            ("INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY", ""),
            ("CANNOT_UPDATE_CONVERTED_LEAD", ""),
            ("NOT_FOUND", "The requested resource does not exist"),
            ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "BlockTrigger: Block__c is not valid"),
            ("CANNOT_EXECUTE_FLOW_TRIGGER", "the flow failed"),
            ("APEX_ERROR", "System.NullPointerException"),
        ],
    ),
    (
        Dependency,
        &[(
            "INVALID_FIELD",
            "Foreign key external ID: A-1 not found for field ExternalId__c in entity Account",
        )],
    ),
    (
        Untried,
        &[
            ("ALL_OR_NONE_OPERATION_ROLLED_BACK", "Record rolled back because not all …"),
            ("PROCESSING_HALTED", "The transaction was rolled back since another …"),
            ("BATCH_PROCESSING_HALTED", ""),
        ],
    ),
    (
        Settings,
        &[
            ("InvalidBatch", "Field name not found : X"),
            ("ClientInputError", "LineEnding is invalid on user data."),
            ("INVALIDENTITY", "Entity 'X' is not supported by the Bulk API."),
        ],
    ),
];

#[test]
fn every_code_has_its_class() {
    for (expected, lines) in LISTED {
        for (code, message) in *lines {
            assert_eq!(class(code, message), *expected, "{code}: {message}");
        }
    }
}

#[test]
fn a_quota_says_how_long_to_rest() {
    let pause = |message| judge().class("REQUEST_LIMIT_EXCEEDED", message).1;
    assert_eq!(pause("TotalRequests Limit exceeded."), Some(QUOTA_PAUSE));
    assert_eq!(pause("ConcurrentPerOrgLongTxn Limit exceeded"), Some(CONCURRENCY_PAUSE));
}

#[test]
fn classes_become_deliveries() {
    let row = |code, message| judge().row(code, message);
    assert!(matches!(row("UNABLE_TO_LOCK_ROW", ""), Delivery::Retry { after: None, .. }));
    assert!(matches!(row("REQUIRED_FIELD_MISSING", ""), Delivery::Reject { .. }));
    assert!(matches!(row("STORAGE_LIMIT_EXCEEDED", ""), Delivery::Outage { after: Some(_), .. }));
    assert!(matches!(row("INVALID_SESSION_ID", ""), Delivery::Misconfigured { .. }));
    assert!(matches!(row("InvalidBatch", ""), Delivery::Misconfigured { .. }));
    assert!(matches!(row("SERVER_UNAVAILABLE", ""), Delivery::Busy { .. }));
    assert_eq!(row("PROCESSING_HALTED", ""), Delivery::Held);
    let parent = row("INVALID_FIELD", "Foreign key external ID: A-1 not found for field X");
    assert!(matches!(parent, Delivery::Retry { after: Some(_), .. }));
}

#[test]
fn a_version_older_than_what_the_org_has_is_delivered() {
    let row = |code, message| judge().row(code, message);
    let says = "this is an older version than stored";
    assert_eq!(row("FIELD_CUSTOM_VALIDATION_EXCEPTION", says), Delivery::Accepted);
    assert!(matches!(row("REQUIRED_FIELD_MISSING", says), Delivery::Reject { .. }));
    assert!(matches!(row("FIELD_CUSTOM_VALIDATION_EXCEPTION", "no"), Delivery::Reject { .. }));
}

#[test]
fn classes_become_problems_of_a_call() {
    let call = |class| SalesforceFailure::new(class, "CODE", "why").call_problem();
    for class in [Class::Auth, Class::Settings, Class::Permanent] {
        assert!(matches!(call(class), CallProblem::Refused(_)), "{class:?}");
    }
    for class in [Class::Quota, Class::Down, Class::Transient, Class::Dependency, Class::Untried] {
        assert!(matches!(call(class), CallProblem::Outage { .. }), "{class:?}");
    }
    assert!(matches!(call(Class::Unknown), CallProblem::Unclear(_)));
}

#[test]
fn rows_refused_one_and_all_for_a_column_stay() {
    let no_column = judge().row("INVALID_FIELD", "No such column 'X' on sobject of type Contact");
    let too_long = judge().row("STRING_TOO_LONG", "Name");
    let after = |rows: &[&Delivery]| {
        let mut rows: Vec<Delivery> = rows.iter().map(|d| (*d).clone()).collect();
        spare_rows_of_wrong_settings(&mut rows);
        rows
    };
    let spared = after(&[&no_column, &no_column]);
    assert!(spared.iter().all(|d| matches!(d, Delivery::Misconfigured { after: Some(_), .. })));
    for rows in [
        &[&no_column][..],
        &[],
        &[&no_column, &Delivery::Accepted],
        &[&too_long, &too_long],
        &[&no_column, &too_long],
    ] {
        let before: Vec<Delivery> = rows.iter().map(|d| (*d).clone()).collect();
        assert_eq!(after(rows), before);
    }
}

#[test]
fn rows_that_were_too_many_at_once_are_known() {
    assert!(wants_fewer_neighbours("UNABLE_TO_LOCK_ROW", ""));
    assert!(wants_fewer_neighbours("APEX_ERROR", "System.LimitException: Too many DML rows"));
    assert!(!wants_fewer_neighbours("APEX_ERROR", "System.NullPointerException"));
}
