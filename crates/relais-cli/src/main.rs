//! The program `relais`: settings, wiring, commands. What it does is in the library `relais`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or settings.

mod args;
mod failure;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod memory;
#[cfg(feature = "planted-bugs")]
mod planted;
mod settings;

mod telemetry;
mod wire;

mod commands;
mod output;

#[cfg(test)]
mod fuzz;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    memory::return_what_is_freed();
    // The TLS of every client in this process.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().expect("nobody installed a provider before main");
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&failure::Failure::failed(error)),
    };
    match runtime.block_on(commands::dispatch(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &failure::Failure) -> ExitCode {
    for line in failure.to_string().lines() {
        // It may tell of what stands in a message.
        eprintln!("error: {}", output::escape(line, output::Lines::Keep));
    }
    failure.exit_code()
}
