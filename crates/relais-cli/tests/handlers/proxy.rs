//! A proxy before a service that drops replies: the service has handled the call or still works, and relais does not
//! know.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// A proxy that drops the first reply about each message.
pub(crate) struct ReplyDropper {
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<Calls>>,
}

/// The moment at which the connection of relais is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// When the service has replied.
    AfterReply,
    /// While the service still works.
    BeforeReply,
}

/// The calls by idempotency key.
#[derive(Default)]
struct Calls {
    count: HashMap<String, usize>,
    running: HashMap<String, usize>,
    /// The keys with a call that began while another one was running.
    overlapping: HashSet<String>,
}

impl Calls {
    /// Counts a call; returns whether it is the first of its key.
    fn begin(&mut self, key: &str) -> bool {
        let running = self.running.entry(key.to_owned()).or_default();
        if *running > 0 {
            self.overlapping.insert(key.to_owned());
        }
        *running += 1;
        let count = self.count.entry(key.to_owned()).or_default();
        *count += 1;
        *count == 1
    }

    fn end(&mut self, key: &str) {
        *self.running.get_mut(key).unwrap() -= 1;
    }
}

impl ReplyDropper {
    pub(crate) fn before(service: SocketAddr) -> Self {
        Self::start(service, Cut::AfterReply)
    }

    /// The same, but it closes the connection while the service still works.
    pub(crate) fn cutting_early(service: SocketAddr) -> Self {
        Self::start(service, Cut::BeforeReply)
    }

    fn start(service: SocketAddr, cut: Cut) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::<Mutex<Calls>>::default();
        let counted = Arc::clone(&calls);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || forward(client, service, cut, &counted));
            }
        });
        Self { address, calls }
    }

    /// Returns the number of calls by idempotency key.
    pub(crate) fn calls(&self) -> HashMap<String, usize> {
        self.calls.lock().unwrap().count.clone()
    }

    /// Returns the number of keys that were called again while a call was running.
    pub(crate) fn overlapping(&self) -> usize {
        self.calls.lock().unwrap().overlapping.len()
    }
}

/// Forwards one request and reads the whole reply, which is dropped if it is the first about its message.
fn forward(client: TcpStream, service: SocketAddr, cut: Cut, calls: &Mutex<Calls>) -> Option<()> {
    let (head, body) = request(&client)?;
    let key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
    let is_first = key.is_some_and(|key| calls.lock().unwrap().begin(key));
    let client = (!is_first || cut == Cut::AfterReply).then_some(client);
    let reply = reply(&head, &body, service);
    if let Some(key) = key {
        calls.lock().unwrap().end(key);
    }
    match client {
        Some(mut client) if !is_first => client.write_all(&reply?).ok(),
        _ => None,
    }
}

fn reply(head: &str, body: &[u8], service: SocketAddr) -> Option<Vec<u8>> {
    // One request per connection, so that the end of the reply is known.
    let head = head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let mut upstream = TcpStream::connect(service).ok()?;
    upstream.write_all(&[head.as_bytes(), body].concat()).ok()?;
    let mut reply = Vec::new();
    upstream.read_to_end(&mut reply).ok()?;
    Some(reply)
}

fn request(client: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}
