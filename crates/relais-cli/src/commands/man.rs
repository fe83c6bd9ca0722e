//! `relais completions` and `relais man`: shell completions and manual pages.

use std::{fs, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use super::CommandContext;
use crate::{
    args::Cli,
    failure::{CommandError, Done},
};

pub(crate) fn completions(context: &CommandContext, shell: Shell) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "relais", &mut script);
    let script = String::from_utf8_lossy(&script);
    if context.output.json {
        return context.output.print_json(&json!({ "shell": shell.to_string(), "script": script }));
    }
    context.output.print(&script)
}

/// Prints the first page, or writes one page per command.
pub(crate) fn man(context: &CommandContext, out: Option<&Path>) -> Done {
    let Some(folder) = out else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page)?;
        let page = String::from_utf8_lossy(&page);
        return match context.output.json {
            true => context.output.print_json(&json!({ "page": page })),
            false => context.output.print(&page),
        };
    };
    let cannot =
        |error| CommandError::failed(format!("cannot write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(cannot)?;
    if context.output.json {
        return context.output.print_json(&json!({ "written": folder }));
    }
    let folder = folder.display();
    context
        .output
        .print(&format!("wrote the pages to {folder}; read one with `man -l {folder}/relais.1`"))
}
