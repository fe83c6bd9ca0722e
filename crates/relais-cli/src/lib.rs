//! The program `relais`: configuration, wiring and commands. The engine is the library `relais`.
//!
//! A library only so that tests can start the program with another store; it has no stable API.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

mod args;
mod failure;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod memory;
mod settings;

mod telemetry;
mod wire;

mod commands;
mod output;

#[cfg(test)]
mod fuzz;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use relais_core::store::StoreDriver;

/// Replaces the store of `relais run` by one that wraps it.
pub type WrapStore = fn(Arc<dyn StoreDriver>) -> Arc<dyn StoreDriver>;

/// Runs the program with these arguments, the first of which is its name.
///
/// # Panics
/// If the process has installed another TLS provider.
pub fn run(args: impl IntoIterator<Item = OsString>, wrap_store: WrapStore) -> ExitCode {
    let cli = args::Cli::parse_from(args);
    let color = output::use_color(cli.color, io::stderr().is_terminal());
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    memory::set_mmap_threshold();
    // The TLS provider of all clients in this process.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().expect("no other TLS provider is installed");
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&failure::CommandError::failed(error), color),
    };
    match runtime.block_on(commands::dispatch(cli, wrap_store)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure, color),
    }
}

fn report(failure: &failure::CommandError, color: bool) -> ExitCode {
    if let failure::CommandError::Configuration(error) = failure {
        eprintln!("{}", error.render(color));
        return failure.exit_code();
    }
    for line in failure.to_string().lines() {
        // The text may contain parts of a message.
        eprintln!("error: {}", output::escape(line, output::LineBreaks::Keep));
    }
    failure.exit_code()
}
