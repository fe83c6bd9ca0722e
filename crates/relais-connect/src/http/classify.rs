//! Classifies a response, or its absence.
//!
//! Pure and driven by a table: a status is looked up, a failure is classified by when it happened.
//! An *outage* means that no connection was established. Whether the message or the target is at
//! fault for any other failure is decided later, by evidence (`relais_core::fault`).

use std::{
    error::Error,
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use relais_core::delivery::{Delivery, Problem, TIMEOUT};

use super::private_address::{ADDRESS_REFUSED, PrivateAddressError};

/// The longest pause that a target can request.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// The kinds of [`Delivery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusVerdict {
    Accepted,
    Retry,
    Busy,
    Misconfigured,
    Reject,
}

/// The first matching row decides.
const BY_STATUS: &[(RangeInclusive<u16>, StatusVerdict)] = &[
    (200..=299, StatusVerdict::Accepted),
    (300..=399, StatusVerdict::Reject), // redirects are not followed: they lead around the address check
    (401..=401, StatusVerdict::Misconfigured),
    (403..=404, StatusVerdict::Misconfigured), // a wrong address, or a deployment without the page
    (407..=407, StatusVerdict::Misconfigured),
    (408..=408, StatusVerdict::Retry),
    (425..=425, StatusVerdict::Retry),
    (429..=429, StatusVerdict::Busy),
    (400..=499, StatusVerdict::Reject),
    (502..=504, StatusVerdict::Busy),
    (500..=599, StatusVerdict::Retry),
];

pub(super) fn by_status(status: u16) -> StatusVerdict {
    let line = BY_STATUS.iter().find(|(range, _)| range.contains(&status));
    // An unknown status does not reject the message.
    line.map_or(StatusVerdict::Retry, |(_, verdict)| *verdict)
}

/// Returns the delivery for a response that is not a success.
pub(super) fn answered(status: u16, after: Option<Duration>, message: &str) -> Delivery {
    let problem = Problem::new(&format!("HTTP_{status}"), message);
    match by_status(status) {
        StatusVerdict::Accepted => Delivery::Accepted,
        StatusVerdict::Retry => Delivery::Retry { problem, after },
        StatusVerdict::Reject => Delivery::Reject { problem },
        StatusVerdict::Busy => Delivery::Busy { problem, after },
        StatusVerdict::Misconfigured => Delivery::Misconfigured { problem, after: None },
    }
}

/// Returns the pause that a `Retry-After` requests: seconds or a date, at most [`RETRY_AFTER_MAX`].
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let asked = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit is a long time too.
        value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        // A date in the past requests no pause.
        httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(asked.min(RETRY_AFTER_MAX))
}

/// Returns the delivery for a request without a response. `call` names the request, e.g. `POST
/// https://example.org`.
pub(crate) fn failed(error: &reqwest::Error, call: &str) -> Delivery {
    if let Some(refused) = chain(error).find_map(|e| e.downcast_ref::<PrivateAddressError>()) {
        return Delivery::reject(ADDRESS_REFUSED, &refused.to_string());
    }
    let why = reasons(error);
    let text = |what: &str| format!("{call}: {what}: {why}");
    if error.is_builder() {
        Delivery::reject("REQUEST_INVALID", &text("cannot build the request"))
    } else if error.is_dns() {
        let text = text("cannot resolve the name");
        Delivery::outage("DNS_FAILED", &format!("{text}; check the host in the URL, and DNS"))
    } else if error.is_connect() && error.is_timeout() {
        Delivery::outage("CONNECT_TIMEOUT", &text("cannot connect in time"))
    } else if error.is_connect() {
        let text = text("cannot connect");
        let next = "; check that the target runs, and host and port in the URL";
        let next = if text.contains("refused") { next } else { "" };
        Delivery::outage("CONNECT_FAILED", &format!("{text}{next}"))
    } else if error.is_timeout() {
        Delivery::retry(TIMEOUT, &text("no response in time, the request may have arrived"))
    } else {
        Delivery::retry(
            "CONNECTION_CUT",
            &text("connection closed before the response, the request may have arrived"),
        )
    }
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |e| (*e).source())
}

/// Returns the causes below the error itself, whose own text would contain the whole URL.
fn reasons(error: &reqwest::Error) -> String {
    let mut reasons: Vec<String> = chain(error).map(ToString::to_string).collect();
    reasons.dedup();
    let why = harmless(&reasons.join(": "));
    match tls_advice(&why) {
        Some(advice) => format!("{why}; {advice}"),
        None => why,
    }
}

/// Returns the advice for a failed TLS connection, by the error texts of rustls.
fn tls_advice(why: &str) -> Option<&'static str> {
    const NO_TLS: &str = "the target does not use TLS on this port: use http:// or another port";
    const ADVICE: [(&str, &str); 8] = [
        (
            "UnknownIssuer",
            "its CA is not among the root certificates of this machine: install the CA, or set the \
             environment variable SSL_CERT_FILE to its file",
        ),
        (
            "CaUsedAsEndEntity",
            "the target uses a CA certificate as its server certificate, as self-signed ones often are: \
             install one that is signed by a CA",
        ),
        ("certificate expired", "renew the certificate of the target"),
        ("not valid for name", "use a host name that is in the certificate"),
        ("NotValidForName", "use a host name that is in the certificate"),
        (
            "CertificateRequired",
            "the target requires a client certificate, which relais does not send; put a proxy in front of it",
        ),
        ("InvalidContentType", NO_TLS),
        ("tls handshake eof", NO_TLS),
    ];
    ADVICE.into_iter().find(|(words, _)| why.contains(words)).map(|(_, advice)| advice)
}

/// Makes text of a third party safe to show: no control characters, and none that change the text
/// direction.
pub(crate) fn harmless(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => '\u{FFFD}',
        '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '\u{FFFD}',
        c => c,
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_verdict() {
        use StatusVerdict::{Accepted, Busy, Misconfigured, Reject, Retry};
        let table = [
            (Accepted, &[200, 201, 202, 204, 206, 226, 299][..]),
            (Reject, &[300, 301, 302, 303, 304, 307, 308, 399]),
            (Misconfigured, &[401, 403, 404, 407]),
            (Reject, &[400, 402, 405, 406, 409, 410, 411, 412, 413, 414, 415]),
            (Reject, &[417, 418, 421, 422, 423, 424, 426, 428, 431, 451, 499]),
            (Retry, &[408, 425, 500, 501, 505, 506, 507, 508, 510, 511, 520, 524, 599]),
            (Busy, &[429, 502, 503, 504]),
            (Retry, &[100, 101, 199, 600, 999]),
        ];
        for (verdict, statuses) in table {
            for status in statuses {
                assert_eq!(by_status(*status), verdict, "{status}");
            }
        }
    }

    #[test]
    fn an_answer_keeps_its_code_and_the_pause_it_asks_for() {
        let after = Some(Duration::from_secs(3));
        let Delivery::Busy { problem, after: asked } = answered(503, after, "no") else {
            panic!("503 is busy")
        };
        assert_eq!((problem.code.as_str(), problem.message.as_str()), ("HTTP_503", "no"));
        assert_eq!(asked, after);
        assert!(matches!(answered(500, after, ""), Delivery::Retry { after: Some(_), .. }));
        assert!(matches!(answered(400, after, ""), Delivery::Reject { .. }));
        assert!(matches!(answered(404, after, ""), Delivery::Misconfigured { after: None, .. }));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |value| retry_after(value, now).map(|pause| pause.as_secs());
        let table = [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("3600", Some(3_600)),
            ("3601", Some(3_600)),
            ("99999999999999999999999999", Some(3_600)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", Some(3_600)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("1994-11-06T08:50:37Z", None),
            ("Sun, 32 Nov 1994 08:50:37 GMT", None),
        ];
        for (value, expected) in table {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }

    #[test]
    fn text_of_third_parties_is_made_safe_to_show() {
        assert_eq!(harmless("a\r\nb\tc\0\x1b[31m\u{202E}é"), "a  b c\u{FFFD}\u{FFFD}[31m\u{FFFD}é");
    }
}
