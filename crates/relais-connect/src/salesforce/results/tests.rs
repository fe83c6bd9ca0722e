//! Files in every format that Salesforce produces, and truncated files.

use super::*;

fn judge() -> Judge {
    Judge { external_id: "ExternalId__c".into(), superseded: None }
}

/// Reads in chunks of `size` bytes.
fn read_in(text: &str, size: usize) -> Result<(u64, Vec<(String, String)>), ResultError> {
    let mut found = Vec::new();
    let mut each = |key: &str, error: &str| found.push((key.to_owned(), error.to_owned()));
    let mut reader = ResultReader::new("ExternalId__c");
    for piece in text.as_bytes().chunks(size) {
        reader.feed(piece, &mut each)?;
    }
    let count = reader.finish(&mut each)?;
    Ok((count, found))
}

fn keys(text: &str) -> Vec<String> {
    let whole = read_in(text, usize::MAX).unwrap();
    for size in [1, 2, 3, 7] {
        assert_eq!(read_in(text, size).unwrap(), whole, "in pieces of {size}");
    }
    assert_eq!(whole.0, whole.1.len() as u64);
    whole.1.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn columns_are_found_by_name_wherever_they_are() {
    for text in [
        "\"sf__Id\",\"sf__Created\",ExternalId__c,LastName\n\"0031\",\"true\",\"M-1\",\"Doe\"\n",
        "\"sf__Id\",\"sf__Created\",LastName,ExternalId__c\n\"0031\",\"true\",\"Doe\",\"M-1\"\n",
        "ExternalId__c,LastName,\"sf__Id\"\n\"M-1\",\"Do\"\"e,\n\r\n\",\"\"\n",
        "\u{feff}\"ExternalId__c\",\"LastName\"\r\n\"M-1\",\"Doe\"\r\n",
        "\u{feff}\"a,b\",\"ExternalId__c\"\n\"1\",\"M-1\"\n",
        "\"externalid__C\"\n\"M-1\"",
    ] {
        assert_eq!(keys(text), ["M-1"], "{text}");
    }
}

#[test]
fn nothing_comes_in_three_forms() {
    for text in ["", "\n", "\"sf__Id\",\"sf__Error\",ExternalId__c\n", "\"sf__Id\",ExternalId__c"] {
        assert_eq!(keys(text), [""; 0], "{text:?}");
    }
}

#[test]
fn a_file_that_breaks_off_is_noticed() {
    let whole = "\"sf__Id\",\"sf__Error\",ExternalId__c\n\
                 \"\",\"REQUIRED_FIELD_MISSING:Required: [Name]:Name --\",\"M-1\"\n\
                 \"\",\"X:say \"\"no\"\":--\",\"M-2\"\n";
    assert_eq!(keys(whole).len(), 2);
    let header = whole.find('\n').unwrap() + 1;
    for end in header..whole.len() {
        // A cut between two records cannot be detected, and the last line may lack its end.
        let is_whole =
            matches!(&whole[..end], text if text.ends_with('\n') || text.ends_with("-2\""));
        let read = read_in(&whole[..end], usize::MAX);
        assert_eq!(read.is_ok(), is_whole || whole[..end].ends_with("-1\""), "{}", &whole[..end]);
    }
}

#[test]
fn lines_that_do_not_fit_the_header_are_refused() {
    for text in
        ["ExternalId__c,A\n\"M-1\"\n", "ExternalId__c\n\"M-1\",\"x\"\n", "A,B\n\"1\",\"2\"\n"]
    {
        assert!(matches!(read_in(text, usize::MAX), Err(ResultError::Csv(_))), "{text}");
    }
    for size in [1, 2, usize::MAX] {
        assert_eq!(
            read_in(" \n<html>down</html>", size),
            Err(ResultError::Html),
            "in pieces of {size}"
        );
    }
    let endless = format!("ExternalId__c\n\"{}", "x".repeat(RECORD_MAX + 1));
    assert!(matches!(read_in(&endless, 64 * 1024), Err(ResultError::Csv(_))));
}

#[test]
fn long_records_are_read() {
    let many: Vec<String> = (0..400).map(|n| format!("F{n}")).collect();
    let long = "é\"\"x".repeat(20_000);
    let text = format!(
        "ExternalId__c,{}\n\"M-1\",\"{long}\",{}\n",
        many.join(","),
        vec!["\"\""; 399].join(",")
    );
    assert_eq!(keys(&text), ["M-1"]);
}

fn unmentioned() -> Delivery {
    Delivery::retry("RESULT_MISSING", "")
}

fn matched(ids: &[&str], notes: &[(ResultFile, &str, &str)]) -> Vec<Delivery> {
    let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
    let judge = judge();
    let mut matcher = Matcher::new(&ids, &judge);
    for (file, key, error) in notes {
        matcher.note(*file, key, error, &Delivery::Held);
    }
    matcher.finish(&unmentioned())
}

#[test]
fn each_row_has_its_answer() {
    let answers = matched(
        &["ok", "bad", "busy", "left", "lost"],
        &[
            (ResultFile::Successful, "ok", ""),
            (ResultFile::Failed, "busy", "UNABLE_TO_LOCK_ROW:unable to obtain: 001:--"),
            (
                ResultFile::Failed,
                "bad",
                "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:N --",
            ),
            (ResultFile::Unprocessed, "left", ""),
            (ResultFile::Successful, "settled before", ""),
        ],
    );
    assert_eq!(answers[0], Delivery::Accepted);
    assert!(matches!(&answers[1], Delivery::Reject { problem } if problem.code.starts_with("REQ")));
    assert!(matches!(answers[2], Delivery::Retry { .. }));
    assert_eq!(answers[3], Delivery::Held);
    assert_eq!(answers[4], unmentioned());
}

#[test]
fn a_row_that_is_mentioned_twice_has_one_answer_and_success_goes_first() {
    let error = "REQUIRED_FIELD_MISSING:x:--";
    let both = [
        (ResultFile::Successful, "a", ""),
        (ResultFile::Failed, "a", error),
        (ResultFile::Unprocessed, "a", ""),
    ];
    assert_eq!(matched(&["a"], &both), [Delivery::Accepted]);
    let turned = [
        (ResultFile::Failed, "a", error),
        (ResultFile::Unprocessed, "a", ""),
        (ResultFile::Successful, "a", ""),
    ];
    assert_eq!(matched(&["a"], &turned), [Delivery::Accepted]);
    let twice =
        [(ResultFile::Failed, "a", error), (ResultFile::Failed, "a", "UNABLE_TO_LOCK_ROW:x:--")];
    assert!(matches!(matched(&["a"], &twice)[0], Delivery::Reject { .. }));
}

#[test]
fn ids_that_come_back_in_another_case_are_ours_if_there_is_only_one() {
    assert_eq!(matched(&["M-1"], &[(ResultFile::Successful, "m-1", "")]), [Delivery::Accepted]);
    let two = matched(&["M-1", "m-1"], &[(ResultFile::Successful, "M-1", "")]);
    assert_eq!(two, [Delivery::Accepted, unmentioned()]);
    let unclear = matched(&["AB", "ab"], &[(ResultFile::Successful, "Ab", "")]);
    assert_eq!(unclear, [unmentioned(), unmentioned()]);
}

#[test]
fn errors_are_split_into_code_and_message() {
    for (error, expected) in [
        (
            "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --",
            ("REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]"),
        ),
        (
            "STRING_TOO_LONG:data value too large:Name,Account.Key__c --",
            ("STRING_TOO_LONG", "data value too large (Name,Account.Key__c)"),
        ),
        ("A_CODE:it says: no -- really", ("A_CODE", "it says: no -- really")),
        (
            "INVALID_CROSS_REFERENCE_KEY:invalid cross reference id:--",
            ("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id"),
        ),
        ("UNABLE_TO_LOCK_ROW", ("UNABLE_TO_LOCK_ROW", "")),
        ("it broke: badly", ("UNKNOWN_EXCEPTION", "it broke: badly")),
        ("", ("UNKNOWN_EXCEPTION", "")),
    ] {
        let (code, message) = split_error(error);
        assert_eq!((code, &*message), expected);
    }
}
