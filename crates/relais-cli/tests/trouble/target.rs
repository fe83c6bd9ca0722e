//! A target that answers each call by a rule, many at a time.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Time limit of a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The answer of the target to a call.
pub(crate) enum Reply {
    Status(u16),
    /// 429, with this many seconds to wait.
    RetryAfter(u32),
    /// Closes the connection without an answer.
    Cut,
    /// Keeps the connection open without an answer.
    Never,
}

/// One call, as the rule sees it.
pub(crate) struct Call {
    /// Counts from 0.
    pub(crate) number: usize,
    path: String,
    key: String,
    calm: bool,
}

impl Call {
    /// The last part of the path.
    pub(crate) fn destination(&self) -> &str {
        self.path.trim_start_matches('/')
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The trouble is over.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }
}

/// The number of calls at each path.
type CallsOfPaths = Arc<Mutex<HashMap<String, usize>>>;

pub(crate) struct RuleTarget {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
    of_paths: CallsOfPaths,
    calm: Arc<AtomicBool>,
}

impl RuleTarget {
    pub(crate) fn start(rule: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (calls, calm) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let of_paths = CallsOfPaths::default();
        let (counted, over, rule) = (Arc::clone(&calls), Arc::clone(&calm), Arc::new(rule));
        let paths = Arc::clone(&of_paths);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (calls, calm) = (Arc::clone(&counted), Arc::clone(&over));
                let (rule, paths) = (Arc::clone(&rule), Arc::clone(&paths));
                std::thread::spawn(move || serve(stream, (&calls, &paths), &calm, &*rule));
            }
        });
        Self { address, calls, of_paths, calm }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub(crate) fn wait_for_calls(&self, count: usize) {
        self.wait_until(|| self.calls() >= count);
    }

    /// Waits for a condition on the calls.
    pub(crate) fn wait_until(&self, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "after {} calls", self.calls());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the number of calls to this destination.
    pub(crate) fn calls_of(&self, destination: &str) -> usize {
        let calls = self.of_paths.lock().unwrap();
        calls.get(&format!("/{destination}")).copied().unwrap_or(0)
    }

    pub(crate) fn wait_for_calls_of(&self, destination: &str, count: usize) {
        self.wait_until(|| self.calls_of(destination) >= count);
    }

    /// Ends the trouble.
    pub(crate) fn calm(&self) {
        self.calm.store(true, SeqCst);
    }
}

/// Answers the calls of one connection, until it is closed.
fn serve(
    stream: TcpStream,
    (calls, of_paths): (&AtomicUsize, &Mutex<HashMap<String, usize>>),
    calm: &AtomicBool,
    rule: &dyn Fn(&Call) -> Reply,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (path, key) = request(&mut reader)?;
        let number = calls.fetch_add(1, SeqCst);
        *of_paths.lock().unwrap().entry(path.clone()).or_default() += 1;
        let call = Call { number, path, key, calm: calm.load(SeqCst) };
        let (status, more) = match rule(&call) {
            Reply::Status(status) => (status, String::new()),
            Reply::RetryAfter(seconds) => (429, format!("retry-after: {seconds}\r\n")),
            Reply::Cut => return None,
            Reply::Never => {
                // Until the caller gives up.
                let _ = reader.read(&mut [0]);
                return None;
            }
        };
        write!(stream, "HTTP/1.1 {status} X\r\n{more}content-length: 0\r\n\r\n").ok()?;
    }
}

/// Reads one request: its path and the key of its message.
fn request(reader: &mut impl BufRead) -> Option<(String, String)> {
    let (mut path, mut key, mut length) = (String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if path.is_empty() {
            line.split(' ').nth(1)?.clone_into(&mut path);
        } else if line.is_empty() {
            break;
        } else if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "message-key" => value.trim().clone_into(&mut key),
                _ => {}
            }
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    Some((path, key))
}
