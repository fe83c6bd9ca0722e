//! relais with the bug that `RELAIS_PLANTED_BUG` names in its store. `cargo xtask torture --bugs` runs it
//! to prove that the checker finds each of them.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    relais_cli::run(env::args_os(), relais_store_tests::faulty::plant)
}
