//! Consistency of the command line and its documentation.

use std::time::Duration;

use clap::CommandFactory;

use super::*;

/// The page that describes every command.
const PAGE: &str = include_str!("../../../../docs/cli.md");

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn filters_are_parsed() {
    let cli = Cli::try_parse_from([
        "relais", "outbox", "list", "--status", "pending", "--since", "15m", "--type", "A",
        "--json",
    ])
    .unwrap();
    assert!(cli.json);
    let RelaisCommand::Outbox(OutboxCommand::List(list)) = cli.command else { panic!("{cli:?}") };
    assert_eq!(list.matching.since, Some(Duration::from_secs(900)));
    assert_eq!(list.matching.event_type.as_deref(), Some("A"));
    assert_eq!(list.page.limit, 50);
}

#[test]
fn every_command_has_a_valid_example() {
    for (path, command) in runnable() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut lines = help.lines();
        assert_eq!(lines.next(), Some("Example:"), "{path}: {help}");
        let example = lines.next().unwrap_or_default().trim();
        assert!(example.starts_with(&format!("{path} ")) || example == path, "{path}: {example}");
        assert_parses(example);
    }
}

#[test]
fn the_page_shows_every_command_and_no_other() {
    let examples: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("relais ")).collect();
    for example in &examples {
        assert_parses(example);
    }
    for (path, _) in runnable() {
        let own = |example: &&str| words(example).join(" ").starts_with(&path);
        assert!(examples.iter().any(own), "docs/cli.md has no example of `{path}`");
    }
}

/// Returns all commands with their full names.
fn runnable() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    let mut open = vec![("relais".to_owned(), Cli::command())];
    while let Some((path, command)) = open.pop() {
        for part in command.get_subcommands() {
            open.push((format!("{path} {}", part.get_name()), part.clone()));
        }
        if path != "relais" && !command.is_subcommand_required_set() {
            found.push((path, command));
        }
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

fn assert_parses(example: &str) {
    let taken = Cli::try_parse_from(words(example));
    assert!(taken.is_ok(), "{example}: {}", taken.unwrap_err());
}

/// Splits a line as a shell does, without redirections and comments.
fn words(line: &str) -> Vec<String> {
    let line = line.split(" > ").next().unwrap_or_default();
    let line = line.split(" # ").next().unwrap_or_default();
    let quoted = line.split('"').enumerate();
    let words = quoted.flat_map(|(number, part)| match number % 2 {
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(str::to_owned).collect(),
    });
    words.collect()
}
