//! A temporary directory that is removed afterwards, together with the server in it.
//!
//! A keeper process waits on a pipe that only we hold. However we end (done, failed, Ctrl-C, killed),
//! the pipe closes; then the keeper stops the server of the directory, if any, and removes it.
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

/// Arguments: the directory, then the file in it whose first line is the server's process, and the
/// signal that stops it. Reads one line: `keep` leaves everything as it is. A server that is just
/// being started finds the mark `closing`, or we find its process. A process that is dead and not
/// collected by its parent has ended all the same.
const KEEPER: &str = r#"
trap '' INT TERM HUP
word=
read -r word
[ "$word" = keep ] && exit 0
touch "$1/closing"
pid=
[ -n "$2" ] && pid=$(head -n 1 "$1/$2" 2>/dev/null)
if [ -n "$pid" ]; then
  kill "-$3" "$pid" 2>/dev/null
  tries=0
  while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null &&
    [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
"#;

/// The signal that stops the server in a directory; its data needs no clean shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// A file in the directory; its first line is the number of the server's process.
    pub(crate) pid_file: &'static str,
    /// Without `SIG`.
    pub(crate) signal: &'static str,
}

/// The directory and its keeper.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    stop: Option<Stop>,
    keeper: Child,
    line: Option<ChildStdin>,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        Self::keeping(None)
    }

    /// A directory with a server in it, once there is one.
    pub(crate) fn of_server(stop: Stop) -> Result<Self> {
        Self::keeping(Some(stop))
    }

    fn keeping(stop: Option<Stop>) -> Result<Self> {
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
            .args(stop.iter().flat_map(|stop| [stop.pid_file, stop.signal]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run `sh`")?;
        let line = keeper.stdin.take();
        Ok(Self { path, stop, keeper, line })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory and the server in it for inspection; returns the command that
    /// gets rid of both.
    pub(crate) fn keep(mut self) -> String {
        if let Some(mut line) = self.line.take() {
            // A keeper that has ended keeps everything too.
            let _ = line.write_all(b"keep\n");
        }
        let path = self.path.display();
        let kill =
            |stop: Stop| format!("kill -{} $(head -n 1 {path}/{}); ", stop.signal, stop.pid_file);
        format!("{}rm -r {path}", self.stop.map(kill).unwrap_or_default())
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
    fn the_server_goes_with_the_directory() {
        let scratch = Scratch::of_server(Stop { pid_file: "pid", signal: "KILL" }).unwrap();
        let path = scratch.path().to_path_buf();
        let mut server = Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(path.join("pid"), format!("{}\nmore\n", server.id())).unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert!(!server.wait().unwrap().success());
    }

    #[test]
    fn a_kept_directory_stays() {
        let stop = Stop { pid_file: "pid", signal: "QUIT" };
        let scratch = Scratch::of_server(stop).unwrap();
        let path = scratch.path().to_path_buf();
        let name = path.display();
        let remove = format!("kill -QUIT $(head -n 1 {name}/pid); rm -r {name}");
        assert_eq!(scratch.keep(), remove);
        assert!(path.exists());
        std::fs::remove_dir_all(path).unwrap();
    }
}
