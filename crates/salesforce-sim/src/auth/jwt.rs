//! The JWT bearer grant: a signed assertion of client and user.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use serde::{Deserialize, de::DeserializeOwned};

use super::refused;
use crate::{config::AuthConfig, reply::ApiReply};

/// Maximum lifetime of an assertion.
const LIFE_MAX_S: i64 = 3 * 60;
const AUDIENCES: [&str; 2] = ["https://login.salesforce.com", "https://test.salesforce.com"];

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
}

#[derive(Deserialize)]
struct JwtClaims {
    iss: String,
    sub: String,
    aud: String,
    exp: f64,
}

/// Returns the user of the assertion. Its time is checked with the real clock, because it comes
/// from outside.
pub(super) fn user(auth: &AuthConfig, base: &str, assertion: &str) -> Result<String, ApiReply> {
    check(auth, base, assertion, Timestamp::now()).map_err(|why| refused(400, "invalid_grant", why))
}

fn check(
    auth: &AuthConfig,
    base: &str,
    assertion: &str,
    now: Timestamp,
) -> Result<String, &'static str> {
    let (signed, signature) = assertion.rsplit_once('.').ok_or("invalid assertion")?;
    let (header, claims) = signed.split_once('.').ok_or("invalid assertion")?;
    let header: JwtHeader = part(header)?;
    let claims: JwtClaims = part(claims)?;
    if header.alg != "RS256" {
        return Err("algorithm is not RS256");
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "invalid assertion")?;
    if let Some(pem) = &auth.jwt_public_key {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| "the configured public key is not PEM")?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| "invalid assertion")?;
    }
    if auth.client_id.as_ref().is_some_and(|known| *known != claims.iss) || claims.iss.is_empty() {
        return Err("client identifier invalid");
    }
    if auth.username.as_ref().is_some_and(|known| *known != claims.sub) || claims.sub.is_empty() {
        return Err("user hasn't approved this consumer");
    }
    if !AUDIENCES.contains(&claims.aud.as_str()) && claims.aud != base {
        return Err("audience is invalid");
    }
    let left = claims.exp - now.as_second() as f64;
    if left <= 0.0 || left > LIFE_MAX_S as f64 {
        return Err("expired authorization code");
    }
    Ok(claims.sub)
}

fn part<T: DeserializeOwned>(encoded: &str) -> Result<T, &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| "invalid assertion")?;
    serde_json::from_slice(&bytes).map_err(|_| "invalid assertion")
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        encoding::AsDer,
        rand::SystemRandom,
        rsa::KeySize,
        signature::{KeyPair, RSA_PKCS1_SHA256, RsaKeyPair},
    };
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn claims() -> Value {
        json!({"iss": "key", "sub": "me@example.org", "aud": AUDIENCES[0], "exp": NOW + 170})
    }

    fn signed(key: &RsaKeyPair, claims: &Value, alg: &str) -> String {
        let encode = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let text = format!("{}.{}", encode(json!({"alg": alg})), encode(claims.clone()));
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn pem(key: &RsaKeyPair) -> String {
        let der: aws_lc_rs::encoding::PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
        let text = STANDARD.encode(der.as_ref());
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn ask(auth: &AuthConfig, assertion: &str) -> Result<String, &'static str> {
        check(auth, "http://sim", assertion, Timestamp::from_second(NOW).unwrap())
    }

    #[test]
    fn the_right_signature_is_needed_where_a_key_is_configured() {
        let (ours, theirs) = (KeySize::Rsa2048, KeySize::Rsa2048);
        let ours = RsaKeyPair::generate(ours).unwrap();
        let theirs = RsaKeyPair::generate(theirs).unwrap();
        let auth = AuthConfig { jwt_public_key: Some(pem(&ours)), ..AuthConfig::default() };
        assert_eq!(ask(&auth, &signed(&ours, &claims(), "RS256")).unwrap(), "me@example.org");
        assert_eq!(ask(&auth, &signed(&theirs, &claims(), "RS256")), Err("invalid assertion"));
        let anyone = AuthConfig::default();
        assert!(ask(&anyone, &signed(&theirs, &claims(), "RS256")).is_ok());
        assert_eq!(
            ask(&anyone, &signed(&theirs, &claims(), "none")),
            Err("algorithm is not RS256")
        );
    }

    #[test]
    fn life_and_audience_are_checked() {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            ask(&AuthConfig::default(), &signed(&key, &claims, "RS256"))
        };
        assert!(with("exp", json!(NOW + 180)).is_ok());
        assert_eq!(with("exp", json!(NOW + 181)), Err("expired authorization code"));
        assert_eq!(with("exp", json!(NOW)), Err("expired authorization code"));
        assert_eq!(with("aud", json!("https://example.org")), Err("audience is invalid"));
        assert_eq!(with("sub", json!("")), Err("user hasn't approved this consumer"));
        assert_eq!(ask(&AuthConfig::default(), "a.b.c"), Err("invalid assertion"));
        assert_eq!(ask(&AuthConfig::default(), ""), Err("invalid assertion"));
    }
}
