//! `relais init`: writes a commented configuration, whole or for one source and one destination.

use std::{
    borrow::Cow,
    fs::OpenOptions,
    io::{ErrorKind, Write},
};

use serde_json::json;

use super::CommandContext;
use crate::{
    args::{InitArgs, InitSource, InitTarget},
    failure::{CommandError, Done},
};

/// Every kind and most keys, as comments where they are not used.
const EXAMPLE: &str = include_str!("init/relais.toml");

/// Returns the configuration of a source, a route and a destination.
fn of_pair(from: InitSource, to: InitTarget) -> String {
    let source = match from {
        InitSource::Amqp => include_str!("init/from-amqp.toml"),
        InitSource::Http => include_str!("init/from-http.toml"),
        InitSource::Kafka => include_str!("init/from-kafka.toml"),
        InitSource::Nats => include_str!("init/from-nats.toml"),
        InitSource::Rabbitmq => include_str!("init/from-rabbitmq.toml"),
        InitSource::Servicebus => include_str!("init/from-servicebus.toml"),
    };
    let target = match to {
        InitTarget::Amqp => include_str!("init/to-amqp.toml"),
        InitTarget::Http => include_str!("init/to-http.toml"),
        InitTarget::Kafka => include_str!("init/to-kafka.toml"),
        InitTarget::Log => include_str!("init/to-log.toml"),
        InitTarget::Nats => include_str!("init/to-nats.toml"),
        InitTarget::Rabbitmq => include_str!("init/to-rabbitmq.toml"),
        InitTarget::Salesforce => include_str!("init/to-salesforce.toml"),
        InitTarget::Servicebus => include_str!("init/to-servicebus.toml"),
    };
    let (head, route) = (include_str!("init/head.toml"), include_str!("init/route.toml"));
    let limits = include_str!("init/tail.toml");
    format!("{head}\n{source}\n{route}\n{target}{limits}")
}

fn configuration(args: &InitArgs) -> Cow<'static, str> {
    match (args.from, args.to) {
        (None, None) => EXAMPLE.into(),
        (from, to) => {
            of_pair(from.unwrap_or(InitSource::Http), to.unwrap_or(InitTarget::Log)).into()
        }
    }
}

/// Writes the file; overwrites an existing one only with `--force`.
pub(crate) fn init(context: &CommandContext, args: &InitArgs) -> Done {
    let path = &context.config;
    let mut options = OpenOptions::new();
    options.write(true);
    if args.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    // It may hold secrets later.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CommandError::failed(format!(
            "{} exists already; --force overwrites it",
            path.display()
        )),
        _ => CommandError::failed(format!("cannot write {}: {error}", path.display())),
    })?;
    file.write_all(configuration(args).as_bytes())?;
    if context.output.json {
        return context.output.print_json(&json!({ "written": path }));
    }
    context.output.print(&format!(
        "wrote {}\nnext: `relais check --connect` validates it and tries every connection, `relais run` \
         starts it",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::ValueEnum;

    use super::*;
    use crate::settings::{self, Settings};

    fn read(text: &str) -> Settings {
        let variable = |name: &str| (!name.starts_with("OTEL_")).then(|| "x".to_owned());
        let read = settings::read(Path::new("relais.toml"), text, &variable);
        let (settings, warnings) = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(warnings, [], "{text}");
        settings
    }

    /// Returns the text with its example keys: they start at the margin with `# word = …` or `# [section]`.
    fn with_comments(text: &str) -> String {
        let is_key = |rest: &&str| {
            let word = rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
            rest.starts_with('[') || word
        };
        let line =
            |line: &'_ str| line.strip_prefix("# ").filter(is_key).unwrap_or(line).to_owned();
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_is_valid() {
        assert!(read(EXAMPLE).defines("orders"));
    }

    #[test]
    fn the_commented_lines_of_the_example_are_valid() {
        let settings = read(&with_comments(EXAMPLE));
        assert_eq!((settings.sources.len(), settings.destinations.len()), (6, 8));
        assert_eq!(settings.processes.len(), 1);
    }

    #[test]
    fn every_pair_is_valid_with_and_without_its_commented_keys() {
        for from in InitSource::value_variants() {
            for to in InitTarget::value_variants() {
                let text = of_pair(*from, *to);
                for text in [with_comments(&text), text] {
                    let settings = read(&text);
                    let kind = settings.destinations[0].target.kind();
                    assert_eq!(kind, to.to_possible_value().unwrap().get_name());
                    assert_eq!((settings.sources.len(), settings.destinations.len()), (1, 1));
                    assert!(settings.defines("orders-out"));
                }
            }
        }
    }

    #[test]
    fn one_kind_alone_gets_the_simplest_other_side() {
        let args = |from, to| InitArgs { from, to, force: false };
        let text = configuration(&args(Some(InitSource::Kafka), None));
        assert_eq!(text, of_pair(InitSource::Kafka, InitTarget::Log));
        let text = configuration(&args(None, Some(InitTarget::Nats)));
        assert_eq!(text, of_pair(InitSource::Http, InitTarget::Nats));
    }
}
