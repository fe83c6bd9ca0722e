//! A NATS server of the test's own, and a client that speaks its protocol of lines.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const CONFIG: &str = "jetstream { store_dir: \"data\" }\n\
                      authorization { user: relais, password: CANARY }\n";

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not in time");
        thread::sleep(PAUSE);
    }
}

/// A running server with its files. It ends with this value.
pub(crate) struct Server {
    folder: TempDir,
    program: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts a server; without its program the test is left out, except in continuous integration.
    pub(crate) fn from_environment() -> Option<Self> {
        let program = std::env::var_os("RELAIS_TEST_NATS_SERVER");
        assert!(program.is_some() || std::env::var_os("CI").is_none(), "CI is set, NATS is not");
        let Some(program) = program else {
            eprintln!("NOT TESTED: RELAIS_TEST_NATS_SERVER is not set");
            return None;
        };
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("nats.conf"), CONFIG).unwrap();
        let mut server = Self { folder, program: program.into(), port: 0, process: None };
        server.start("-1");
        Some(server)
    }

    fn start(&mut self, port: &str) {
        let log = self.folder.path().join("log");
        let process = Command::new(&self.program)
            .current_dir(self.folder.path())
            .args(["-c", "nats.conf", "-a", "127.0.0.1", "-p", port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn();
        self.process = Some(process.unwrap());
        let said = || fs::read_to_string(&log).unwrap();
        wait_until("the server starts", || said().contains("Server is ready"));
        let said = said();
        let line = said.lines().find(|line| line.contains("client connections on")).unwrap();
        self.port = line.rsplit_once(':').unwrap().1.parse().unwrap();
    }

    /// Kills it, as a crash would, and starts it again with the same port and data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let port = self.port.to_string();
        self.start(&port);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://relais:CANARY@127.0.0.1:{}", self.port)
    }

    pub(crate) fn create_stream(&self, name: &str, subject: &str) {
        let config = json!({
            "name": name, "subjects": [subject], "storage": "file", "num_replicas": 1,
        });
        let made = self.api(&format!("STREAM.CREATE.{name}"), &config);
        assert!(made["error"].is_null(), "{made}");
    }

    pub(crate) fn messages(&self, stream: &str) -> u64 {
        let info = self.api(&format!("STREAM.INFO.{stream}"), &json!({}));
        info["state"]["messages"].as_u64().unwrap()
    }

    /// Returns the headers and the body of a message.
    pub(crate) fn message(&self, stream: &str, sequence: u64) -> (String, Vec<u8>) {
        let request = format!("STREAM.MSG.GET.{stream}");
        let answer = self.api(&request, &json!({"seq": sequence}));
        let part = |name: &str| {
            let text = answer["message"][name].as_str().unwrap_or_default();
            decode_base64(text)
        };
        (String::from_utf8(part("hdrs")).unwrap(), part("data"))
    }

    /// Returns the messages that a consumer has delivered and that are not acknowledged, and those
    /// that it has not delivered.
    pub(crate) fn open_messages(&self, stream: &str, consumer: &str) -> (u64, u64) {
        let info = self.api(&format!("CONSUMER.INFO.{stream}.{consumer}"), &json!({}));
        let number = |name: &str| info[name].as_u64().unwrap_or(u64::MAX);
        (number("num_ack_pending"), number("num_pending"))
    }

    fn api(&self, request: &str, body: &Value) -> Value {
        let answer = self.ask(&format!("$JS.API.{request}"), &[], body.to_string().as_bytes());
        serde_json::from_slice(&answer).unwrap()
    }

    /// Publishes a message and waits until the stream has it.
    pub(crate) fn send(&self, subject: &str, headers: &[(&str, &str)], body: &[u8]) {
        let answer: Value = serde_json::from_slice(&self.ask(subject, headers, body)).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
    }

    /// Sends a request on a connection of its own and returns the answer.
    fn ask(&self, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let login = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "user": "relais", "pass": "CANARY",
        });
        let mut head = String::from("NATS/1.0\r\n");
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head += "\r\n";
        let (size, total) = (head.len(), head.len() + body.len());
        let request = format!(
            "CONNECT {login}\r\nSUB answer 1\r\nHPUB {subject} answer {size} {total}\r\n{head}"
        );
        (&stream).write_all(&[request.as_bytes(), body, b"\r\n"].concat()).unwrap();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert!(!line.is_empty() && !line.starts_with("-ERR"), "{subject}: {line}");
            if line.starts_with("MSG ") {
                let size = line.trim().rsplit_once(' ').unwrap().1.parse().unwrap();
                let mut answer = vec![0; size];
                lines.read_exact(&mut answer).unwrap();
                return answer;
            }
            assert!(!line.starts_with("HMSG "), "{subject}: no responders");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut length) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        let value = DIGITS.iter().position(|known| *known == digit).unwrap();
        bits = (bits << 6) | u32::try_from(value).unwrap();
        length += 6;
        if length >= 8 {
            length -= 8;
            bytes.push(u8::try_from((bits >> length) & 0xFF).unwrap());
        }
    }
    bytes
}
