//! Running other programs: output goes through as it comes, failures carry the command line.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::tally::TestTally;

/// Interval of polls of a child with a time limit.
const POLL: Duration = Duration::from_millis(50);

/// The root of the repository: the parent of the folder xtask lives in.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The cargo that runs us, in the root of the repository.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Returns the path of a program in the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|place| place.is_file())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

/// Runs it with our own output; true if it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run `{}`", line(command)))?;
    Ok(status.success())
}

/// Runs it, passes its standard output through line by line and counts the test results in it.
pub(crate) fn succeeds_counting(command: &mut Command, tally: &mut TestTally) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{}`", line(command)))?;
    let mut output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut bytes = Vec::new();
    while output.read_until(b'\n', &mut bytes)? > 0 {
        let text = String::from_utf8_lossy(&bytes);
        print!("{text}");
        tally.count(&text);
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

/// Runs it and ends it when the time is up; an error says that it was.
pub(crate) fn succeeds_within(command: &mut Command, limit: Duration) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run `{}`", line(command)))?;
    match wait(&mut child, limit)? {
        Some(good) => Ok(good),
        None => {
            bail!("`{}` did not end by itself within {} s", line(command), limit.as_secs())
        }
    }
}

/// Returns true if it succeeded; `None` if it had to be ended.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<bool>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Runs it quietly and gives what it printed; what it complained about is in the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !output.status.success() {
        // Some programs complain where others answer.
        let complaint = [output.stderr, output.stdout].concat();
        let complaint = String::from_utf8_lossy(&complaint).into_owned();
        bail!("`{}` failed: {}", line(command), complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_as_one_would_type_it() {
        let mut command = Command::new("some/where/cargo");
        command.args(["test", "--workspace"]);
        assert_eq!(line(&command), "cargo test --workspace");
    }

    #[test]
    fn what_does_not_end_by_itself_is_ended() {
        let mut endless = Command::new("sleep");
        endless.arg("600");
        let error = succeeds_within(&mut endless, Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("did not end by itself"));
    }

    #[test]
    fn results_are_counted_while_the_output_passes_through() {
        let mut child = Command::new("echo");
        child.arg("test result: ok. 2 passed; 1 failed; 0 ignored");
        let mut tally = TestTally::default();
        assert!(succeeds_counting(&mut child, &mut tally).unwrap());
        assert_eq!((tally.passed, tally.failed), (2, 1));
    }
}
