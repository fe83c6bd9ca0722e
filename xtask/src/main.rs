//! The automation of relais: `cargo xtask test | tidy | docs | bench | torture | dist | server`.
//!
//! Invariant: only std, anyhow and serde_json, so that it builds in seconds on a cold machine; and
//! whatever it starts is stopped and removed again, however it ends (see [`scratch`]).

mod amqp;
mod apicurio;
mod apt;
mod axe;
mod bench;
mod broker_script;
mod certificates;
mod chromium;
mod command;
mod compiler;
mod dist;
mod docs;
mod faketime;
mod jobs;
mod kafka;
mod languages;
mod maven;
mod nats;
mod nats_current;
mod packages;
mod pgbouncer;
mod ports;
mod postgres;
mod promtool;
mod rabbitmq;
mod scratch;
mod servers;
mod tally;
mod test;
mod test_programs;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <command>

  test    lint, build and test everything against PostgreSQL and brokers of its own
            --quick         no servers, a sample of the tests, five minutes once built
            --filter NAME   only the tests whose name contains NAME, nothing else
            --no-lint       without format, tidy, docs, clippy and cargo-deny
            --strict        do not run up to three failed tests once more, alone
            --keep          leave the private servers running and say how to stop them
  tidy    the rules of this repository that no compiler checks
            --words         list the words in comments that STYLE.md replaces
  docs    check the pages in docs, and build them as a book with search, in target/book
  bench   cargo bench against a private PostgreSQL and Kafka; the figures go to target/bench.json
            further arguments go to the benchmark
  torture crash loops against a private PostgreSQL and Kafka, with a checker; about eight minutes
            --seed N, --seconds N, --store sqlite|postgres, --mode ci|release
            --bugs          the same with each planted bug: every one must be found
            --debug         with the debug build: sooner built, but slower
  dist    build and package the program with all features: tarball, Debian package, OCI image,
            SBOM (CycloneDX) and checksums, in target/dist
            --program FILE  package this program; builds nothing, and makes no SBOM
            --out DIR       another folder; what is in it is removed
  server  start the private servers, print where they are, stop them at Ctrl-C";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> anyhow::Result<ExitCode> {
    match args.split_first() {
        Some((_, rest)) if rest.iter().any(|arg| arg == "--help" || arg == "-h") => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some((command, rest)) => match command.as_str() {
            "test" => match test::TestOptions::parse(rest) {
                Ok(options) => test::run(&options),
                Err(problem) => Ok(usage(&problem)),
            },
            "tidy" if rest.is_empty() => tidy::run(),
            "tidy" if rest == ["--words"] => tidy::list_words(),
            "docs" if rest.is_empty() => docs::run(),
            "bench" => bench::run(rest),
            "torture" => torture::run(&torture::TortureOptions::parse(rest)),
            "dist" => match dist::DistOptions::parse(rest) {
                Ok(options) => dist::run(&options),
                Err(problem) => Ok(usage(&problem)),
            },
            "server" if rest.is_empty() => servers::serve(),
            "help" | "--help" | "-h" => {
                println!("{HELP}");
                Ok(ExitCode::SUCCESS)
            }
            _ => Ok(usage(&format!("unknown command or argument: {}", args.join(" ")))),
        },
        None => Ok(usage("a command is missing")),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n\n{HELP}");
    ExitCode::from(2)
}
