//! A proxy before a service that drops replies: the service has handled the call, and relais does not know.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// A proxy that drops the first reply about each message.
pub(crate) struct ReplyDropper {
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<HashMap<String, usize>>>,
}

impl ReplyDropper {
    pub(crate) fn before(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::<Mutex<HashMap<String, usize>>>::default();
        let counted = Arc::clone(&calls);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || forward(client, service, &counted));
            }
        });
        Self { address, calls }
    }

    /// Returns the number of calls by idempotency key.
    pub(crate) fn calls(&self) -> HashMap<String, usize> {
        self.calls.lock().unwrap().clone()
    }
}

/// Forwards one request, reads the whole reply, and then drops it if it is the first about its message.
fn forward(
    mut client: TcpStream,
    service: SocketAddr,
    calls: &Mutex<HashMap<String, usize>>,
) -> Option<()> {
    let (head, body) = request(&client)?;
    // One request per connection, so that the end of the reply is known.
    let head = head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let mut upstream = TcpStream::connect(service).ok()?;
    upstream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    let mut reply = Vec::new();
    upstream.read_to_end(&mut reply).ok()?;
    let id = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
    let is_first = id.is_some_and(|id| {
        let mut calls = calls.lock().unwrap();
        let count = calls.entry(id.to_owned()).or_default();
        *count += 1;
        *count == 1
    });
    if !is_first {
        client.write_all(&reply).ok()?;
    }
    Some(())
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
