//! The signed claim of the JWT bearer flow: RS256, with the crypto provider of TLS.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::{
    SignatureScheme,
    pki_types::{PrivateKeyDer, pem::PemObject},
    sign::SigningKey,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::classify::{Class, SalesforceFailure};

/// Validity of a claim. Salesforce allows at most three minutes; ten seconds are reserved for clock
/// differences.
const LIFE_SECONDS: u64 = 170;

/// The private key of the app.
pub(super) struct JwtKey(Arc<dyn SigningKey>);

impl JwtKey {
    /// Reads the key. Errors reveal nothing of it.
    pub(super) fn from_pem(pem: &SecretString) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes()).map_err(|_| {
            "`private_key` is not a PEM private key; put the whole file, from -----BEGIN to \
                     END-----, into an environment variable and write \"${NAME}\""
        })?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(der).map_err(|_| {
            "cannot read `private_key`; it must be an RSA key without a password: `openssl rsa \
                     -in KEY -out PLAIN` removes one"
        })?;
        let key = Self(key);
        key.sign(b"").map_err(|_| {
            "`private_key` must be an RSA key; make one with `openssl genrsa 2048` and upload its \
                      certificate to the app in the org"
        })?;
        Ok(key)
    }

    /// Returns the signed claim that `client_id` acts for `username`.
    pub(super) fn assertion(
        &self,
        client_id: &str,
        username: &str,
        audience: &str,
        now_seconds: u64,
    ) -> Result<String, SalesforceFailure> {
        let claims = json!({
            "iss": client_id,
            "sub": username,
            "aud": audience,
            "exp": now_seconds + LIFE_SECONDS,
        });
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "RS256" })), part(claims));
        let signature = self.sign(signed.as_bytes()).map_err(|why| {
            SalesforceFailure::new(Class::Settings, "PRIVATE_KEY", &format!("cannot sign: {why}"))
        })?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let signer = self.0.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]);
        let signer = signer.ok_or("the key is not RSA")?;
        signer.sign(bytes).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
