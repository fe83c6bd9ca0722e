//! `cargo xtask test --quick`: the loop while one works on a change. It needs no server and ends in time,
//! so it proves less than `cargo xtask test`, and prints what it left out.

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{TestOptions, TestRun, at_once, show, time};
use crate::{
    compiler,
    jobs::{self, JobResult, TestJob},
    test_programs::TestProgram,
    tidy,
};

/// No test program is started later than this after the first.
const START_MAX: Duration = Duration::from_secs(210);
/// A test program that takes longer hangs.
const PROGRAM_MAX: Duration = Duration::from_secs(90);

/// Test programs that take long or need a server, each with its reason.
const LEFT_OUT: [(&str, &str); 29] = [
    ("relais-cli connectors", "needs brokers"),
    ("relais-cli console", "drives a browser"),
    ("relais-cli demo", "runs the demo to its end"),
    ("relais-cli docs", "runs the examples of five languages"),
    ("relais-cli fail_points", "hundreds of crashes"),
    ("relais-cli kafka", "needs a broker"),
    ("relais-cli kafka_crash", "needs a broker"),
    ("relais-cli kafka_leader", "needs a broker"),
    ("relais-cli memory", "moves large rows for minutes"),
    ("relais-cli nats", "needs a server"),
    ("relais-cli outage", "an outage of a minute"),
    ("relais-cli process_crash", "ten thousand processes"),
    ("relais-cli salesforce_crash", "many crashes"),
    ("relais-cli salesforce_volume", "a large volume"),
    ("relais-cli schemathesis", "installs a program, and runs for a given time"),
    ("relais-compile-tests mistakes", "compiles a workspace of its own"),
    ("relais-connect amqp", "needs brokers"),
    ("relais-connect amqp_restart", "needs brokers"),
    ("relais-connect kafka", "needs a broker"),
    ("relais-connect kafka_restart", "needs a broker"),
    ("relais-connect kafka_restart_publisher", "needs a broker"),
    ("relais-connect nats", "needs a server"),
    ("relais-connect rabbitmq", "needs a broker"),
    ("relais-connect rabbitmq_restart", "needs a broker"),
    ("relais-model model", "80 s of model checking"),
    ("relais-store postgres", "needs a server"),
    ("salesforce-sim clients", "installs clients of other languages"),
    ("servicebus-sim clients", "installs a client of another language"),
    ("xtask packages", "builds packages"),
];
/// Test programs of which only some tests run: those whose name has this in it.
const PART: [(&str, &str); 1] = [("relais-store conformance", "sqlite::")];

/// Variables with which tests find servers, or fail without them.
const SERVERS: [&str; 9] = [
    "CI",
    "RELAIS_TEST_POSTGRES",
    "RELAIS_TEST_KAFKA",
    "RELAIS_TEST_RABBITMQ",
    "RELAIS_TEST_NATS",
    "RELAIS_TEST_NATS_CURRENT",
    "RELAIS_TEST_ARTEMIS",
    "RELAIS_TEST_QPID",
    "RELAIS_TEST_REGISTRY",
];

pub(super) fn run(options: &TestOptions) -> Result<ExitCode> {
    let started = Instant::now();
    compiler::ensure()?;
    let mut run = TestRun { strict: true, lints: !options.no_lint, ..TestRun::default() };
    if run.lints {
        run.cargo("format", &["fmt", "--all", "--check"])?;
        run.step("tidy", "cargo xtask tidy", |_| tidy::is_clean())?;
    }
    let mut left_out = vec!["documentation of the code, examples, features alone".to_owned()];
    if run.build()? {
        left_out.extend(run.quick_tests(options.filter.as_deref())?);
    }
    println!();
    for (name, repeat) in &run.failed {
        println!("failed: {name}; to repeat: {repeat}");
    }
    println!("LEFT OUT, PostgreSQL and the brokers among it: {}", left_out.join("; "));
    println!("quick, on SQLite: {}; {}", run.tally, time(started.elapsed()));
    Ok(if run.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl TestRun {
    /// Runs the tests that are quick; returns what was left out.
    fn quick_tests(&mut self, filter: Option<&str>) -> Result<Vec<String>> {
        let programs = TestProgram::built(&mut self.compiling("test"))?;
        let mut left_out = Vec::new();
        let mut jobs = Vec::new();
        // Tests of modules first: they are the quickest, and name the place of a mistake.
        let (modules, others): (Vec<_>, Vec<_>) =
            programs.iter().partition(|program| program.is_of_modules());
        for program in modules.into_iter().chain(others) {
            match reason(&program.name) {
                Some(reason) => left_out.push(format!("{} ({reason})", program.name)),
                None => jobs.push(job(program, filter)),
            }
        }
        let mut failed = Vec::new();
        let until = Instant::now() + START_MAX;
        self.step("quick tests", "cargo xtask test --quick", |tally| {
            let report = |ended: JobResult| {
                show(&ended, tally);
                failed.extend((!ended.good).then_some(ended.name));
            };
            let late = jobs::side_by_side_until(jobs, at_once(), PROGRAM_MAX, until, report);
            left_out.extend(late.into_iter().map(|name| format!("{name} (no time left)")));
            Ok(failed.is_empty())
        })?;
        Ok(left_out)
    }
}

fn reason(name: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(left_out, _)| *left_out == name).map(|(_, reason)| *reason)
}

fn job(program: &TestProgram, filter: Option<&str>) -> TestJob {
    let mut job = program.job();
    let part = PART.iter().find(|(name, _)| *name == program.name).map(|(_, part)| *part);
    without_servers(job.command.args(filter.or(part)));
    job
}

fn without_servers(command: &mut Command) {
    for variable in SERVERS {
        command.env_remove(variable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_left_out_with_a_reason() {
        assert_eq!(reason("relais-model model"), Some("80 s of model checking"));
        assert_eq!(reason("relais modules of relais"), None);
    }

    #[test]
    fn tests_find_no_server() {
        let mut command = Command::new("x");
        without_servers(command.env("RELAIS_TEST_POSTGRES", "postgres://x").env("CI", "true"));
        assert!(command.get_envs().all(|(_, value)| value.is_none()));
    }
}
