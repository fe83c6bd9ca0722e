//! Drives the real program in a folder of its own, and plays the target it delivers to.

pub(crate) mod postgres;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    path::PathBuf,
    process::{Child, ChildStderr, Command, Output, Stdio},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU16, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with settings, and the program in it.
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn with(settings: &str) -> Self {
        let site = Self::new();
        site.write("relais.toml", settings);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relais"));
        command.current_dir(self.folder.path()).args(args).stdin(Stdio::null());
        for name in ["RELAIS_CONFIG", "RUST_LOG", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn relais(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().unwrap())
    }

    /// The JSON a command prints; it must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        let said = self.relais(&args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
    }

    /// Starts `relais run` and waits until it says so.
    pub(crate) fn run(&self) -> Running {
        self.run_with(&[])
    }

    /// The same with these in its environment.
    pub(crate) fn run_with(&self, variables: &[(&str, &str)]) -> Running {
        self.run_args(&["run", "--log", "json"], variables, "\"message\":\"running\"")
    }

    /// Starts the program and waits for some words in its log.
    pub(crate) fn run_args(
        &self,
        args: &[&str],
        variables: &[(&str, &str)],
        words: &str,
    ) -> Running {
        let mut command = self.command(args);
        command.envs(variables.iter().copied());
        Running::start(command, words)
    }
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command ended so, and said all of this, wherever.
// Not every test reads what commands say.
#[allow(dead_code)]
pub(crate) fn assert_said(said: &Said, code: i32, texts: &[&str]) {
    assert_eq!(said.code, code, "{said:?}");
    for text in texts {
        assert!(format!("{}{}", said.out, said.err).contains(text), "{text}: {said:?}");
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// `relais run` at work.
pub(crate) struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    pub(crate) lines: Vec<String>,
    ended: bool,
}

impl Running {
    /// Starts a command and waits for some words in its log.
    pub(crate) fn start(command: Command, words: &str) -> Self {
        Self::start_noting(command, words, |_| {})
    }

    /// The same; its process id is passed on before it is waited for.
    pub(crate) fn start_noting(mut command: Command, words: &str, note: impl FnOnce(u32)) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        note(child.id());
        let mut running = Self {
            log: BufReader::new(child.stderr.take().unwrap()),
            child,
            lines: Vec::new(),
            ended: false,
        };
        running.wait_for(words);
        running
    }

    /// Waits for some words in the log.
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            let mut line = String::new();
            if self.log.read_line(&mut line).unwrap() == 0 {
                panic!("ended before `{text}`: {:#?}", self.lines);
            }
            let found = line.contains(text);
            self.lines.push(line);
            if found {
                return;
            }
        }
    }

    /// Reads the rest of the log in the background: a full pipe would stop a program that logs much.
    // Not every test needs it.
    #[allow(dead_code)]
    pub(crate) fn drain(&self) {
        let mut log = fs::File::from(self.log.get_ref().as_fd().try_clone_to_owned().unwrap());
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    }

    // Not every test uses the process itself.
    #[allow(dead_code)]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address of a source.
    pub(crate) fn address(&self, source: &str) -> SocketAddr {
        let wanted = format!("\"source\":\"{source}\"");
        let line = self.lines.iter().find(|line| line.contains(&wanted)).expect("it is logged");
        address_after(line, "POST http://")
    }

    /// The address behind some words in the log.
    pub(crate) fn logged(&self, words: &str) -> SocketAddr {
        let line = self.lines.iter().find(|line| line.contains(words)).expect("it is logged");
        address_after(line, words)
    }

    /// Asks it to end, waits, and gives what it wrote to stdout.
    pub(crate) fn stop(mut self) -> Said {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let (mut out, mut err) = (String::new(), self.lines.concat());
        self.log.read_to_string(&mut err).unwrap();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        self.ended = true;
        Said { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn address_after(line: &str, words: &str) -> SocketAddr {
    let start = line.find(words).unwrap() + words.len();
    let end = line[start..].find(['/', '"']).unwrap();
    line[start..start + end].parse().unwrap()
}

/// Posts a body; the status and the body of the answer.
pub(crate) fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut head = format!("POST {path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    exchange(address, &head, body)
}

/// Gets a page; the status and the body of the answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\n"), "")
}

fn exchange(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{head}host: {address}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A request as a target saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Something to deliver to; answers each request with its status.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    replies: Arc<Replies>,
    seen: Receiver<Seen>,
    gate: Arc<Mutex<()>>,
}

/// The replies of a target.
struct Replies {
    status: AtomicU16,
    /// Seconds of the `Retry-After`; none if zero.
    retry_after: AtomicU16,
    /// A body with another status.
    refused: Mutex<Option<(String, u16)>>,
}

impl Replies {
    fn status_for(&self, body: &str) -> u16 {
        match &*self.refused.lock().unwrap() {
            Some((refused, status)) if refused == body => *status,
            _ => self.status.load(Ordering::SeqCst),
        }
    }
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let replies = Arc::new(Replies {
            status: AtomicU16::new(200),
            retry_after: AtomicU16::new(0),
            refused: Mutex::new(None),
        });
        let (sender, seen) = channel();
        let answers = Arc::clone(&replies);
        let gate = Arc::new(Mutex::new(()));
        let open = Arc::clone(&gate);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A process that is killed may leave half a request, which is not counted.
                let Some(request) = read_request(&stream) else { continue };
                if answer(stream, request, &answers, &open, &sender).is_none() {
                    break;
                }
            }
        });
        Self { address, replies, seen, gate }
    }

    /// Sends no reply until the guard is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }

    pub(crate) fn answers(&self, status: u16) {
        self.answers_with_pause(status, 0);
    }

    /// The same, and each answer asks for a pause of this many seconds.
    pub(crate) fn answers_with_pause(&self, status: u16, seconds: u16) {
        self.replies.retry_after.store(seconds, Ordering::SeqCst);
        self.replies.status.store(status, Ordering::SeqCst);
    }

    /// Answers this body with another status, until it is called without one.
    // Not every test needs it.
    #[allow(dead_code)]
    pub(crate) fn refuses(&self, refused: Option<(&str, u16)>) {
        let refused = refused.map(|(body, status)| (body.to_owned(), status));
        *self.replies.refused.lock().unwrap() = refused;
    }

    /// The next request; waits for it.
    pub(crate) fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("the target gets a request")
    }

    /// Returns the number of unread requests, and drops them.
    pub(crate) fn unseen(&self) -> usize {
        self.rest().len()
    }

    /// Returns the bodies of unread requests.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.seen.try_iter().map(|seen| seen.body).collect()
    }
}

/// Reads one request; none if the connection ends within it.
fn read_request(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { head, body: String::from_utf8(body).ok()? })
}

/// Answers a request; none if the test reads no more requests.
fn answer(
    mut stream: TcpStream,
    request: Seen,
    replies: &Replies,
    gate: &Mutex<()>,
    seen: &Sender<Seen>,
) -> Option<()> {
    let status = replies.status_for(&request.body);
    let mut request = Some(request);
    if gate.try_lock().is_err() {
        seen.send(request.take()?).ok()?;
        drop(gate.lock().unwrap());
    }
    let pause = match replies.retry_after.load(Ordering::SeqCst) {
        0 => String::new(),
        seconds => format!("retry-after: {seconds}\r\n"),
    };
    let reply =
        format!("HTTP/1.1 {status} X\r\n{pause}content-length: 0\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(reply.as_bytes());
    request.map_or(Some(()), |request| seen.send(request).ok())
}
