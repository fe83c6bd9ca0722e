//! Asks the API as any program would: one request a connection, every header in plain sight.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    pub(crate) fn at(address: SocketAddr) -> Self {
        let headers =
            vec![("host", address.to_string()), ("content-type", "application/json".into())];
        Self { address, headers }
    }

    /// The same with another value of a header.
    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.to_owned()));
        Self { headers, ..*self }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.page(&format!("/api/v1{path}"))
    }

    pub(crate) fn page(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string())
    }

    pub(crate) fn post_text(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", &format!("/api/v1{path}"), body)
    }

    /// A page outside the API.
    pub(crate) fn post_page(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &body.to_string())
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A body that is refused early is not read to its end.
        let _ = stream.write_all(format!("{request}\r\n{body}").as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let asked = format!("{method} {path}");
        let exact = head.to_owned();
        Answer { asked, status, head: head.to_lowercase(), exact, body: body.to_owned() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    asked: String,
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The raw body.
    exact: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header of the answer; names and values are in small letters, but for cookies.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = if name == "set-cookie" { &self.exact } else { &self.head };
        lines.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// Returns the body of a success.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the problem, which must have this status and code.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.fails(status);
        assert_eq!(problem["code"], code, "{}: {problem}", self.asked);
        problem
    }

    pub(crate) fn fails(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], status, "{}: {problem}", self.asked);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }
}
