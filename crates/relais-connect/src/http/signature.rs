//! Signatures as <https://www.standardwebhooks.com> defines them: HMAC-SHA256 over id, time and
//! body. So no part can be changed alone, and an old request cannot be replayed.
//!
//! Pure: the time is an argument. Several secrets may be active, so that a secret can be rotated
//! without downtime.

use std::{fmt, str::FromStr};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use hmac::{Hmac, KeyInit, Mac};
use relais_core::InvalidSettings;
use sha2::Sha256;

/// Header with the id of the message.
pub(super) const ID: &str = "webhook-id";
/// Header with the time of signing, in seconds since 1970.
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
/// Header with the signatures, separated by spaces.
pub(super) const SIGNATURE: &str = "webhook-signature";

/// Maximum difference between the time of signing and our clock, in seconds.
const WINDOW_SECONDS: u64 = 5 * 60;
/// Maximum number of signatures of one request that are checked.
const SIGNATURES_MAX: usize = 16;

/// Base64 with or without padding: both are in use for secrets.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The shared key of a webhook: `whsec_` and Base64, or any other text unchanged.
///
/// ```
/// use relais_connect::http::WebhookSecret;
///
/// let secret: WebhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
/// assert_eq!(format!("{secret:?}"), "[hidden]");
/// assert!("whsec_?".parse::<WebhookSecret>().is_err());
/// ```
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl FromStr for WebhookSecret {
    type Err = InvalidSettings;

    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        let key = match text.strip_prefix("whsec_") {
            Some(encoded) => LENIENT.decode(encoded).map_err(
                |_| "a webhook secret that starts with `whsec_` must continue in Base64",
            )?,
            None => text.as_bytes().to_vec(),
        };
        if key.is_empty() { Err("the webhook secret is empty".into()) } else { Ok(Self(key)) }
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// The content that is signed.
pub(super) struct SignedContent<'a> {
    pub(super) id: &'a str,
    pub(super) timestamp: &'a str,
    pub(super) body: &'a [u8],
}

/// Returns the value of [`SIGNATURE`]: one signature per secret.
pub(super) fn sign(secrets: &[WebhookSecret], signed: &SignedContent<'_>) -> String {
    let one = |secret| {
        format!("v1,{}", STANDARD.encode(mac(secret, signed).finalize().into_bytes().as_slice()))
    };
    secrets.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Verifies that one of `signatures` was made with one of `secrets` at about `now_seconds`. The
/// error names the problem without revealing the expected value.
pub(super) fn verify(
    secrets: &[WebhookSecret],
    signed: &SignedContent<'_>,
    signatures: &str,
    now_seconds: i64,
) -> Result<(), &'static str> {
    let at: i64 = signed
        .timestamp
        .parse()
        .map_err(|_| "webhook-timestamp is not a number of seconds since 1970")?;
    if at.abs_diff(now_seconds) > WINDOW_SECONDS {
        return Err("webhook-timestamp differs from our clock by more than 5 minutes");
    }
    let known = signatures
        .split_ascii_whitespace()
        .take(SIGNATURES_MAX)
        .filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
        .any(|tag| secrets.iter().any(|secret| mac(secret, signed).verify_slice(&tag).is_ok()));
    if known { Ok(()) } else { Err("no v1 signature in webhook-signature matches this body") }
}

fn mac(secret: &WebhookSecret, signed: &SignedContent<'_>) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&secret.0).expect("an HMAC takes a key of any length");
    for part in [signed.id.as_bytes(), b".", signed.timestamp.as_bytes(), b".", signed.body] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example with which every implementation of Standard Webhooks is checked.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const KNOWN: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const AT: i64 = 1_614_265_330;

    fn secrets(texts: &[&str]) -> Vec<WebhookSecret> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn example(body: &[u8]) -> SignedContent<'_> {
        SignedContent { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: "1614265330", body }
    }

    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    #[test]
    fn the_known_example_is_signed_and_verified() {
        let secrets = secrets(&[SECRET]);
        assert_eq!(sign(&secrets, &example(BODY)), KNOWN);
        assert_eq!(verify(&secrets, &example(BODY), KNOWN, AT), Ok(()));
    }

    #[test]
    fn a_change_of_any_part_is_noticed() {
        let secrets = secrets(&[SECRET]);
        assert!(verify(&secrets, &example(br#"{"test": 2432232315}"#), KNOWN, AT).is_err());
        let other = SignedContent { id: "msg_other", ..example(BODY) };
        assert!(verify(&secrets, &other, KNOWN, AT).is_err());
        let later = SignedContent { timestamp: "1614265331", ..example(BODY) };
        assert!(verify(&secrets, &later, KNOWN, AT).is_err());
        for wrong in ["", "v1,", "v1", KNOWN.trim_start_matches("v1,"), "v2,g0hM", "v1,g0hM9SsE"] {
            assert!(verify(&secrets, &example(BODY), wrong, AT).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_five_minutes_around_now_are_accepted() {
        let secrets = secrets(&[SECRET]);
        for (now, ok) in
            [(AT - 300, true), (AT + 300, true), (AT - 301, false), (AT + 301, false), (0, false)]
        {
            assert_eq!(verify(&secrets, &example(BODY), KNOWN, now).is_ok(), ok, "{now}");
        }
        for odd in ["", "soon", "1614265330.0", " 1614265330", "9223372036854775808"] {
            let signed = SignedContent { timestamp: odd, ..example(BODY) };
            assert!(verify(&secrets, &signed, KNOWN, AT).is_err(), "{odd}");
        }
    }

    #[test]
    fn secrets_can_be_replaced_without_a_gap() {
        let (old, both, new) =
            (secrets(&[SECRET]), secrets(&["next", SECRET]), secrets(&["next", "later"]));
        let by_both = sign(&both, &example(BODY));
        assert_eq!(by_both.split(' ').count(), 2);
        for receiver in [&old, &both, &new] {
            assert_eq!(verify(receiver, &example(BODY), &by_both, AT), Ok(()));
        }
        assert!(verify(&secrets(&["unknown"]), &example(BODY), &by_both, AT).is_err());
    }

    #[test]
    fn an_empty_secret_is_refused() {
        for text in ["", "whsec_", "whsec_%%"] {
            assert!(text.parse::<WebhookSecret>().is_err());
        }
    }
}
