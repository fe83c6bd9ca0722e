//! The address and the login of a broker, parsed from a URL.
//!
//! Pure. The password is in no error and no `Debug`.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;
use secrecy::SecretString;

use super::{HiddenBrokerUrl, claims::SharedAccess};

/// Ports of brokers without TLS and with it.
const PORTS: [u16; 2] = [5672, 5671];

/// A broker as the connection dials it.
#[derive(Clone, Debug)]
pub(crate) struct AmqpPeer {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The name in the `open` frame: the virtual host, or the host.
    pub(crate) hostname: String,
    pub(crate) is_tls: bool,
    pub(crate) files: AmqpTlsFiles,
    pub(crate) login: AmqpLogin,
    /// A key whose tokens open the address, at a broker with claims.
    pub(crate) access: Option<SharedAccess>,
}

/// PEM files of a connection with TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct AmqpTlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The SASL mechanism and its values.
#[derive(Clone, Debug)]
pub(crate) enum AmqpLogin {
    Anonymous,
    /// The client certificate is the login.
    External,
    Plain {
        user: String,
        password: SecretString,
    },
}

impl AmqpPeer {
    /// Parses a URL whose form [`HiddenBrokerUrl`] has checked. The error does not repeat it.
    pub(super) fn of_url(url: &HiddenBrokerUrl, files: AmqpTlsFiles) -> Result<Self, String> {
        let text = url.expose();
        let (_, rest) = text.split_once("://").unwrap_or_default();
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (host, port) = host_and_port(authority, PORTS[usize::from(url.is_tls())])?;
        let hostname = match decoded(path)? {
            path if path.is_empty() => host.clone(),
            path => path,
        };
        let login = match login {
            Some(login) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                let password = SecretString::from(decoded(password)?);
                AmqpLogin::Plain { user: decoded(user)?, password }
            }
            None if files.certificate.is_some() => AmqpLogin::External,
            None => AmqpLogin::Anonymous,
        };
        let is_tls = url.is_tls();
        Ok(Self { host, port, hostname, is_tls, files, login, access: None })
    }
}

impl fmt::Display for AmqpPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "amqps" } else { "amqp" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Splits `HOST`, `HOST:PORT` and `[IPV6]:PORT`.
pub(crate) fn host_and_port(authority: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| "`url` has a port that is no number".to_owned())?,
        None => default,
    };
    if host.is_empty() {
        return Err("`url` names no host".to_owned());
    }
    Ok((host.to_owned(), port))
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "`url` has bytes that are no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn peer(url: &str) -> AmqpPeer {
        let url = HiddenBrokerUrl::parse(url).unwrap();
        AmqpPeer::of_url(&url, AmqpTlsFiles::default()).unwrap()
    }

    #[test]
    fn a_url_names_host_port_login_and_virtual_host() {
        let one = peer("amqps://us%40er:p%3Ass@broker.example/vhost%3Aorders");
        assert_eq!((one.host.as_str(), one.port, one.is_tls), ("broker.example", 5671, true));
        assert_eq!(one.hostname, "vhost:orders");
        let AmqpLogin::Plain { user, password } = &one.login else { panic!("{one:?}") };
        assert_eq!((user.as_str(), password.expose_secret()), ("us@er", "p:ss"));
        assert!(!format!("{one:?}{one}").contains("p:ss"));
        let two = peer("amqp://[::1]:7000");
        assert_eq!((two.host.as_str(), two.port, two.hostname.as_str()), ("::1", 7000, "::1"));
        assert!(matches!(two.login, AmqpLogin::Anonymous));
        assert_eq!(peer("amqp://h").port, 5672);
    }

    #[test]
    fn a_certificate_without_a_login_is_the_login() {
        let url = HiddenBrokerUrl::parse("amqps://h").unwrap();
        let files = AmqpTlsFiles { certificate: Some("c.pem".into()), ..AmqpTlsFiles::default() };
        let peer = AmqpPeer::of_url(&url, files).unwrap();
        assert!(matches!(peer.login, AmqpLogin::External));
    }

    #[test]
    fn a_url_that_names_no_place_is_an_error_without_its_password() {
        for wrong in ["amqp://u:secret@:5672", "amqp://u:secret@h:port", "amqp://u:secret@h/%ff"] {
            let url = HiddenBrokerUrl::parse(wrong).unwrap();
            let why = AmqpPeer::of_url(&url, AmqpTlsFiles::default()).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
