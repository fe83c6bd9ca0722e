//! A temporary directory that is gone afterwards, together with the server in it.
//!
//! A keeper process waits on a pipe that only we hold. However we end (done, failed, Ctrl-C, killed),
//! the pipe closes; then the keeper stops the PostgreSQL of the directory, if any, and removes it.
//! So no signal handler is needed, and nothing outlives us.

use std::{
    fs::DirBuilder,
    io::Write,
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};

/// Reads one line: `keep` leaves everything as it is. Signal QUIT is PostgreSQL's immediate shutdown;
/// nothing in a directory about to be removed is worth a checkpoint.
const KEEPER: &str = r#"
trap '' INT TERM HUP
word=
read -r word
[ "$word" = keep ] && exit 0
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
  kill -QUIT "$pid" 2>/dev/null
  tries=0
  while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
"#;

/// The directory and its keeper.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keeper: Child,
    line: Option<ChildStdin>,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let moment = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let name = format!("relais-{}-{moment}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run `sh`")?;
        let line = keeper.stdin.take();
        Ok(Self { path, keeper, line })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory and the server in it for a person to look at.
    pub(crate) fn keep(mut self) {
        if let Some(mut line) = self.line.take() {
            // A keeper that is gone keeps everything too.
            let _ = line.write_all(b"keep\n");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.line.take());
        // Nothing can be done about a keeper that cannot be waited for.
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_goes_with_its_guard() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("file"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_kept_directory_stays() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        scratch.keep();
        assert!(path.exists());
        std::fs::remove_dir_all(path).unwrap();
    }
}
