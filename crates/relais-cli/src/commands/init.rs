//! `relais init`: writes an example configuration.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write},
};

use serde_json::json;

use super::CommandContext;
use crate::{
    args::InitArgs,
    failure::{CommandError, Done},
};

const TEMPLATE: &str = include_str!("relais.toml");

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
    file.write_all(TEMPLATE.as_bytes())?;
    if context.output.json {
        return context.output.print_json(&json!({ "written": path }));
    }
    context.output.print(&format!(
        "wrote {}\nnext: `relais check` validates and explains it, `relais run` starts it",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings;

    #[test]
    fn the_example_is_valid() {
        let (settings, warnings) =
            settings::read(Path::new("relais.toml"), TEMPLATE, &|_| None).unwrap();
        assert_eq!(warnings, []);
        assert!(settings.defines("orders"));
    }

    #[test]
    fn the_commented_lines_of_the_example_are_valid() {
        let mut text = String::new();
        for line in TEMPLATE.lines() {
            // Example settings start at the margin with `# word = …` or `# [[section]]`.
            let example = line.strip_prefix("# ").filter(|rest| {
                rest.starts_with('[')
                    || rest.split_once(" = ").is_some_and(|(k, _)| !k.contains(' '))
            });
            text.push_str(example.unwrap_or(line));
            text.push('\n');
        }
        let read = settings::read(Path::new("relais.toml"), &text, &|_| Some("x".to_owned()));
        let (settings, warnings) = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(warnings, []);
        assert_eq!((settings.sources.len(), settings.destinations.len()), (4, 6));
        assert_eq!(settings.processes.len(), 1);
    }
}
