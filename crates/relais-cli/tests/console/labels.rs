//! Every button of the console is pressed by a test.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// File of the console, label as its source has it, the words that a test presses, and the test.
const PRESSED: &[(&str, &str, &str, &str)] = &[
    ("app.js", "Reload", "Reload", "a_page_that_fails_is_loaded_again"),
    ("dead_letters.js", "Cancel", "Cancel", "an_edit_is_formatted_and_cancelled"),
    (
        "dead_letters.js",
        "Discard",
        "Discard",
        "of_two_tabs_on_one_row_the_slower_sees_the_new_state",
    ),
    (
        "dead_letters.js",
        "Discard all matching",
        "Discard all matching",
        "all_matching_dead_letters_are_discarded_after_they_are_counted",
    ),
    (
        "dead_letters.js",
        "Edit the payload",
        "Edit the payload",
        "a_dead_letter_is_edited_validated_and_retried",
    ),
    ("dead_letters.js", "Format", "Format", "an_edit_is_formatted_and_cancelled"),
    ("dead_letters.js", "Retry", "Retry", "a_dead_letter_is_edited_validated_and_retried"),
    (
        "dead_letters.js",
        "Retry all matching",
        "Retry all matching",
        "many_dead_letters_are_counted_before_they_are_retried",
    ),
    ("dead_letters.js", "Save", "Save", "a_dead_letter_is_edited_validated_and_retried"),
    (
        "dead_letters.js",
        "Save and retry",
        "Save and retry",
        "a_payload_is_saved_and_retried_with_one_reason_and_its_row_is_followed",
    ),
    ("dead_letters.js", "Validate", "Validate", "a_dead_letter_is_edited_validated_and_retried"),
    (
        "destinations.js",
        "Change limits",
        "Change limits",
        "a_destination_is_paused_limited_and_resumed",
    ),
    ("destinations.js", "Reset breaker", "Reset breaker", "a_breaker_that_is_open_is_reset"),
    ("dialog.js", "${word}${label}", "Pause", "a_destination_is_paused_limited_and_resumed"),
    ("dialog.js", "${word}${label}", "Resume", "a_destination_is_paused_limited_and_resumed"),
    (
        "dialog.js",
        "${word}${label}",
        "Pause order",
        "a_source_and_a_process_type_are_paused_and_resumed",
    ),
    ("dialog.js", "Cancel", "Cancel", "a_cancelled_dialog_changes_nothing"),
    ("dialog.js", "Close", "Close", "the_help_lists_the_shortcuts_and_each_of_them_works"),
    ("dialog.js", "Retry", "Retry", "a_failed_inbox_row_is_retried_on_its_page"),
    (
        "dialog.js",
        "Retry",
        "Retry",
        "a_pending_row_is_failed_and_its_dead_letter_retried_on_its_page",
    ),
    (
        "outbox.js",
        "Fail",
        "Fail",
        "a_pending_row_is_failed_and_its_dead_letter_retried_on_its_page",
    ),
    ("outbox.js", "Send now", "Send now", "a_row_in_backoff_is_sent_now"),
    ("parked_keys.js", "Discard", "Discard", "the_dead_letters_of_a_parked_key_are_discarded"),
    ("parked_keys.js", "Release", "Release", "a_parked_key_is_released"),
    ("parts.js", "Try again", "Try again", "a_page_that_fails_is_loaded_again"),
    (
        "processes.js",
        "Cancel the process",
        "Cancel the process",
        "a_process_is_compensated_and_another_cancelled",
    ),
    ("processes.js", "Compensate", "Compensate", "a_process_is_compensated_and_another_cancelled"),
    ("processes.js", "Pause", "Pause", "a_process_is_paused_and_resumed"),
    ("processes.js", "Resume", "Resume", "a_process_is_paused_and_resumed"),
    (
        "processes.js",
        "Retry the step",
        "Retry the step",
        "a_process_is_compensated_and_another_cancelled",
    ),
    (
        "processes.js",
        "Skip the step",
        "Skip the step",
        "a_process_that_needs_an_operator_is_red_everywhere",
    ),
    (
        "repair.js",
        "Decode as ${name}",
        "Decode as confluent-json",
        "an_undecodable_message_is_decoded_as_another_format",
    ),
    (
        "repair.js",
        "Discard",
        "Discard",
        "a_corrected_payload_is_formatted_and_an_undecodable_message_discarded",
    ),
    (
        "repair.js",
        "Format",
        "Format",
        "a_corrected_payload_is_formatted_and_an_undecodable_message_discarded",
    ),
    (
        "repair.js",
        "Reprocess",
        "Reprocess",
        "undecodable_messages_are_reprocessed_after_the_source_was_configured_again",
    ),
    (
        "repair.js",
        "Reprocess all matching",
        "Reprocess all matching",
        "undecodable_messages_are_reprocessed_after_the_source_was_configured_again",
    ),
    (
        "repair.js",
        "Reprocess with this payload",
        "Reprocess with this payload",
        "an_undecodable_message_is_reprocessed_with_a_corrected_payload",
    ),
    (
        "repair.js",
        "Test decode",
        "Test decode",
        "an_undecodable_message_is_reprocessed_with_a_corrected_payload",
    ),
    (
        "repair.js",
        "Validate",
        "Validate",
        "an_undecodable_message_is_reprocessed_with_a_corrected_payload",
    ),
    ("table.js", "Next", "Next", "filters_and_pages_are_in_the_address_and_survive_a_reload"),
    (
        "table.js",
        "Previous",
        "Previous",
        "filters_and_pages_are_in_the_address_and_survive_a_reload",
    ),
    ("table.js", "Search older rows", "Search older rows", "older_rows_are_searched_by_a_button"),
];

#[test]
fn every_button_of_the_console_is_pressed_by_a_test() {
    let listed: BTreeSet<_> =
        PRESSED.iter().map(|(file, label, ..)| ((*file).to_owned(), (*label).to_owned())).collect();
    let there = labels();
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(missing.is_empty(), "press these in a test and list them here: {missing:?}");
    let gone: Vec<_> = listed.difference(&there).collect();
    assert!(gone.is_empty(), "the console has no such button: {gone:?}");
    let tests: String =
        files(&here("tests/console"), "rs").iter().map(|(_, text)| text.as_str()).collect();
    for (file, label, words, test) in PRESSED {
        let start = tests.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("no test {test}"));
        let body = &tests[start..];
        let body = &body[..body.find("\n}\n").unwrap()];
        assert!(
            body.contains(&format!("press(\"{words}\")")),
            "{test} must press {label} of {file}"
        );
    }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Name and text of the files of a folder.
fn files(folder: &Path, extension: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let chosen = entries.filter(|path| path.extension().is_some_and(|one| one == extension));
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    chosen.map(read).collect()
}

/// File and label of every call of `button`.
fn labels() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (file, text) in files(&here("../relais-admin/console"), "js") {
        for (at, call) in text.match_indices("button(") {
            let before = &text[..at];
            let is_other = before.ends_with(|last: char| last.is_alphanumeric());
            if is_other || before.ends_with("function ") {
                continue;
            }
            let argument = first_argument(&text[at + call.len()..]);
            let mut words = literals(argument);
            if words.is_empty() {
                assert_eq!((file.as_str(), argument), ("processes.js", "label"));
                words = actions(&text);
            }
            found.extend(words.into_iter().map(|label| (file.clone(), label)));
        }
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

fn first_argument(text: &str) -> &str {
    let mut quote = None;
    let end = text.find(|c: char| {
        match quote {
            Some(open) if open == c => quote = None,
            None if matches!(c, '"' | '`') => quote = Some(c),
            _ => return quote.is_none() && matches!(c, ',' | ')'),
        }
        false
    });
    &text[..end.unwrap()]
}

/// The texts in quotes.
fn literals(argument: &str) -> Vec<String> {
    argument.split(['"', '`']).skip(1).step_by(2).map(str::to_owned).collect()
}

/// The first text of each line of the table of actions.
fn actions(text: &str) -> Vec<String> {
    let (_, table) = text.split_once("const ACTIONS = {\n").unwrap();
    let (table, _) = table.split_once("\n};").unwrap();
    table.lines().map(|line| literals(line).remove(0)).collect()
}
