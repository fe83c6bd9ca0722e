//! `cargo xtask test`: everything that must hold before a change lands, in one command.
//!
//! A failing step does not hide the later ones: all run, and the end names those that failed with
//! the command that repeats each. One profile and one feature set for build, tests, examples and
//! demo, so that dependencies are compiled once; clippy runs in the same pass, because a pass of its own
//! would read everything twice.

mod quick;

use std::{
    fs,
    num::NonZero,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    command::{self, cargo},
    compiler, dist, docs,
    jobs::{self, JobResult, TestJob},
    packages,
    scratch::Scratch,
    servers::Servers,
    tally::TestTally,
    test_programs::{self, DOCS, TestProgram},
    tidy,
    workspace::{Package, Workspace},
};

/// Examples and the demo end by themselves, in less than this.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(120);
/// A program of tests that takes longer hangs.
const PROGRAM_OF_TESTS_MAX: Duration = Duration::from_secs(15 * 60);
/// Most failed tests that are run once more, alone. More of them are not chance.
const REPEATED_MAX: usize = 3;
/// The packages whose features must each compile alone.
const SYSTEM_PACKAGES: [&str; 2] = ["relais-store", "relais-connect"];
/// The features of the program that add a broker.
const BROKER_FEATURES: [&str; 4] = ["amqp", "kafka", "nats", "rabbitmq"];

/// Arguments of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    filter: Option<String>,
    no_lint: bool,
    keep: bool,
    strict: bool,
    quick: bool,
}

impl TestOptions {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--no-lint" => options.no_lint = true,
                "--keep" => options.keep = true,
                "--strict" => options.strict = true,
                "--quick" => options.quick = true,
                "--filter" => {
                    let name = args.next().ok_or("--filter needs a part of a test's name")?;
                    options.filter = Some(name.clone());
                }
                other => return Err(format!("unknown argument: {other}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &TestOptions) -> Result<ExitCode> {
    if options.quick {
        return quick::run(options);
    }
    let started = Instant::now();
    let workspace = Workspace::load()?;
    compiler::ensure()?;
    dist::install_tools()?;
    let starting = Servers::starting(&workspace)?;
    let lints = options.filter.is_none() && !options.no_lint;
    let mut run = TestRun { strict: options.strict, lints, ..TestRun::default() };

    if run.lints {
        run.lint()?;
        let pack = "cargo package --no-verify --allow-dirty -p …";
        run.step("packages", pack, |_| packages::can_be_packed(&workspace))?;
    }
    let built = run.build()?;
    let servers = starting.ready()?;
    println!();
    servers.announce()?;
    match &options.filter {
        Some(name) if built => run.tests(&servers, Some(name))?,
        Some(_) => {}
        None => {
            if built {
                run.tests(&servers, None)?;
                run.programs(&servers, &workspace)?;
            }
            run.features_alone(&workspace)?;
        }
    }
    run.report(servers, &workspace, started.elapsed(), options)
}

/// The steps so far.
#[derive(Debug, Default)]
struct TestRun {
    tally: TestTally,
    /// Name of the step, and what repeats it.
    failed: Vec<(String, String)>,
    /// A test that fails once has failed.
    strict: bool,
    /// Clippy runs while cargo compiles.
    lints: bool,
    /// Tests that failed among all others and passed alone.
    unsteady: Vec<String>,
}

impl TestRun {
    fn lint(&mut self) -> Result<()> {
        self.cargo("format", &["fmt", "--all", "--check"])?;
        self.step("tidy", "cargo xtask tidy", |_| tidy::is_clean())?;
        self.step("docs", "cargo xtask docs", |_| docs::is_clean())?;
        if command::output(&mut cargo(["deny", "--version"])).is_ok() {
            self.cargo("deny", &["deny", "check"])?;
        } else {
            println!("\nNOT RUN: cargo deny is not installed (advisories); tidy checks licences");
        }
        Ok(())
    }

    /// Everything there is, once.
    fn build(&mut self) -> Result<bool> {
        let mut build = self.compiling("build");
        build.arg("--all-targets");
        let (name, repeat) = if self.lints {
            let clippy = "cargo clippy --workspace --all-targets --all-features -- -D warnings";
            ("build and clippy", clippy.to_owned())
        } else {
            ("build", command::line(&build))
        };
        self.step(name, &repeat, |_| command::succeeds(&mut build))
    }

    /// A command of cargo that compiles the workspace. With the same wrapper each time, or cargo would
    /// compile again.
    fn compiling(&self, command: &str) -> Command {
        let mut cargo = cargo([command, "--workspace", "--all-features"]);
        if self.lints {
            // As `cargo clippy` calls it; but that only checks, and what it has checked must be compiled.
            cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
            cargo.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        }
        cargo
    }

    /// Unit, integration and documentation tests, to the end even if some fail.
    fn tests(&mut self, servers: &Servers, filter: Option<&str>) -> Result<()> {
        let programs = TestProgram::built(&mut self.compiling("test"))?;
        let (alone, beside): (Vec<_>, Vec<_>) =
            programs.iter().partition(|program| program.is_alone());
        let job = |program: &&TestProgram| {
            let mut job = program.job();
            servers.set_variables(job.command.args(filter));
            job
        };
        let mut docs = self.compiling("test");
        servers.set_variables(docs.args(["--doc", "--no-fail-fast", "--"]).args(filter));
        let docs = TestJob { name: DOCS.to_owned(), command: docs };
        let beside = std::iter::once(docs).chain(beside.iter().map(job)).collect();
        let alone = alone.iter().map(job).collect();
        let mut failed = Vec::new();
        let before = self.failed.len();
        let good = self.step("tests", "cargo xtask test --no-lint", |tally| {
            let mut report = |ended: JobResult| {
                show(&ended, tally);
                failed.extend((!ended.good).then_some(ended.name));
            };
            jobs::side_by_side(beside, at_once(), PROGRAM_OF_TESTS_MAX, &mut report);
            jobs::side_by_side(alone, 1, PROGRAM_OF_TESTS_MAX, &mut report);
            Ok(failed.is_empty())
        })?;
        if !good {
            self.failed.truncate(before);
            self.repeat(servers, &programs, failed)?;
        }
        Ok(())
    }

    /// Hundreds of tests share two cores with real servers: one that fails among them and passes alone
    /// is a fault of its own, and is named at the end, but it does not fail the run.
    fn repeat(
        &mut self,
        servers: &Servers,
        programs: &[TestProgram],
        failed: Vec<String>,
    ) -> Result<()> {
        let failures = std::mem::take(&mut self.tally.failures);
        let few = (1..=REPEATED_MAX).contains(&failures.len()) && !self.strict;
        let mut steady = true;
        for name in failed {
            let line = test_programs::repeat(&name);
            let program = programs.iter().find(|program| program.name == name);
            let (Some(program), true) = (program, few) else {
                self.failed.push((name, line));
                steady = false;
                continue;
            };
            let mut again = program.job().command;
            servers.set_variables(again.arg("--exact").args(&failures));
            let mut alone = TestTally::default();
            steady &= self.step(&format!("{name} alone"), &line, |_| {
                // One that fails without a failed test has none to repeat.
                Ok(command::succeeds_counting(&mut again, &mut alone)? && alone.passed > 0)
            })?;
        }
        if steady {
            self.tally.failed -= failures.len() as u64;
            self.tally.passed += failures.len() as u64;
            self.unsteady = failures;
        }
        Ok(())
    }

    /// Runs what users start: every example, and the demo. Each in an empty directory of its own.
    fn programs(&mut self, servers: &Servers, workspace: &Workspace) -> Result<()> {
        let built = workspace.target.join("debug");
        for Package { name, .. } in workspace.ours_in("examples") {
            let mut example = Command::new(built.join(name));
            servers.set_variables(&mut example);
            let repeat = format!("cargo run -p {name}");
            self.step(&format!("example {name}"), &repeat, |_| ends_well(&mut example))?;
        }
        for name in small_examples()? {
            let mut example = Command::new(built.join("examples").join(&name));
            servers.set_variables(&mut example);
            let repeat = format!("cargo run -p relais --all-features --example {name}");
            self.step(&format!("example {name}"), &repeat, |_| ends_well(&mut example))?;
        }
        let mut demo = Command::new(built.join("relais"));
        demo.args(["demo", "--once"]);
        self.step("demo", "cargo run -- demo --once", |_| ends_well(&mut demo))?;
        Ok(())
    }

    /// Each feature compiles without the others.
    fn features_alone(&mut self, workspace: &Workspace) -> Result<()> {
        let systems = workspace.ours_in("crates").into_iter();
        for package in systems.filter(|package| SYSTEM_PACKAGES.contains(&package.name.as_str())) {
            for feature in package.features.iter().filter(|feature| *feature != "default") {
                let name = format!("{} with only {feature}", package.name);
                let args = ["check", "--quiet", "-p", &package.name, "--no-default-features"];
                self.cargo(&name, &[&args[..], &["--features", feature]].concat())?;
            }
        }
        let program = ["check", "--quiet", "-p", "relais-cli", "--no-default-features"];
        self.cargo("relais-cli without the demo", &program)?;
        for broker in BROKER_FEATURES {
            let name = format!("relais-cli with only {broker}");
            self.cargo(&name, &[&program[..], &["--features", broker]].concat())?;
        }
        Ok(())
    }

    fn cargo(&mut self, name: &str, args: &[&str]) -> Result<bool> {
        let mut command = cargo([]);
        command.args(args);
        self.step(name, &command::line(&command), |_| command::succeeds(&mut command))
    }

    /// Announces the step, runs it, says how it went and how long it took.
    fn step(
        &mut self,
        name: &str,
        repeat: &str,
        work: impl FnOnce(&mut TestTally) -> Result<bool>,
    ) -> Result<bool> {
        println!("\n==> {name}: {repeat}");
        let started = Instant::now();
        let good = work(&mut self.tally).unwrap_or_else(|error| {
            println!("{error:#}");
            false
        });
        let verdict = if good { "ok" } else { "FAILED" };
        println!("<== {name}: {verdict} in {}", time(started.elapsed()));
        if !good {
            self.failed.push((name.to_owned(), repeat.to_owned()));
        }
        Ok(good)
    }

    fn report(
        self,
        servers: Servers,
        workspace: &Workspace,
        took: Duration,
        options: &TestOptions,
    ) -> Result<ExitCode> {
        println!();
        for (name, repeat) in &self.failed {
            println!("failed: {name}; to repeat: {repeat}");
        }
        for name in &self.unsteady {
            println!("UNSTEADY: {name} failed among the others and passed alone; please fix it");
        }
        let sqlite = workspace.sqlite_version()?;
        let tested = servers.summary();
        let code = if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        if options.keep {
            servers.keep();
        }
        println!("{}", self.tally);
        println!(
            "tested against: SQLite {sqlite} (embedded), {tested}; {}; {}",
            self.tally,
            time(took)
        );
        Ok(code)
    }
}

fn ends_well(program: &mut Command) -> Result<bool> {
    let scratch = Scratch::new()?;
    command::succeeds_within(program.current_dir(scratch.path()), PROGRAM_TIME_MAX)
}

/// Returns the names of the examples of the library. Each ends by itself.
fn small_examples() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(command::root().join("crates/relais/examples"))? {
        let file = file?.path();
        let name = file.file_stem().filter(|_| file.extension().is_some_and(|e| e == "rs"));
        names.extend(name.map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Returns the number of parallel test programs: most of them wait most of the time.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get) + 1
}

/// Prints what a job said and adds its results.
fn show(ended: &JobResult, tally: &mut TestTally) {
    let verdict = if ended.good { "ok" } else { "FAILED" };
    println!("\n--- {}: {verdict} in {}\n{}", ended.name, time(ended.took), ended.output);
    ended.output.lines().for_each(|line| tally.count(line));
}

/// Returns a duration as text.
fn time(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<TestOptions, String> {
        TestOptions::parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read_and_unknown_ones_refused() {
        let filter = Some("lease".to_owned());
        let expected =
            TestOptions { filter, no_lint: true, keep: true, strict: true, quick: false };
        assert_eq!(parse(&["--filter", "lease", "--no-lint", "--keep", "--strict"]), Ok(expected));
        assert!(parse(&["--quick"]).is_ok_and(|options| options.quick));
        assert!(parse(&["--filter"]).unwrap_err().contains("needs"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }

    #[test]
    fn a_failing_step_is_remembered_and_the_next_one_still_runs() {
        let mut run = TestRun::default();
        run.step("first", "do first", |_| anyhow::bail!("broken")).unwrap();
        run.step("second", "do second", |tally| {
            tally.passed += 1;
            Ok(true)
        })
        .unwrap();
        assert_eq!(run.failed, [("first".to_owned(), "do first".to_owned())]);
        assert_eq!(run.tally.passed, 1);
    }

    #[test]
    fn times_are_short() {
        assert_eq!(time(Duration::from_millis(20)), "20 ms");
        assert_eq!(time(Duration::from_secs(59)), "59s");
        assert_eq!(time(Duration::from_secs(432)), "7m12s");
    }
}
