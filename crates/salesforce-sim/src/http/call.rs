//! A parsed request.

use hyper::{HeaderMap, Method, Request, body::Incoming, header};
use percent_encoding::percent_decode_str;

/// One request. The path is split before it is decoded, so that a key may contain a slash.
#[derive(Debug)]
pub(crate) struct HttpCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) segments: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    /// The URL that the client used, e.g. `http://127.0.0.1:8080`.
    pub(crate) base: String,
}

impl HttpCall {
    pub(crate) fn of(request: Request<Incoming>, scheme: &str) -> (Self, Incoming) {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let call = Self {
            segments: segments(&path),
            query: pairs(parts.uri.query().unwrap_or_default()),
            path,
            base: format!("{scheme}://{}", host.unwrap_or("localhost")),
            method: parts.method,
            headers: parts.headers,
        };
        (call, body)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        value_of(&self.query, name)
    }

    /// Returns the token of `Authorization: Bearer …`.
    pub(crate) fn token(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        let known = ["bearer", "oauth"].contains(&scheme.to_ascii_lowercase().as_str());
        known.then_some(token.trim())
    }
}

/// Splits a path and drops empty segments: a trailing slash is allowed.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
}

pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

pub(crate) fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_in_a_key_stays_in_its_segment() {
        assert_eq!(segments("/sobjects/A/E__c/x%2Fy%20z/"), ["sobjects", "A", "E__c", "x/y z"]);
        assert_eq!(segments("//"), [""; 0]);
    }
}
