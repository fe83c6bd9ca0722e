//! The program `relais`.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    relais_cli::run(env::args_os(), |store| store)
}
