//! Encrypted connections: whom to trust, and who we are.

use std::{path::Path, sync::Arc};

use relais_core::store::StoreError;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
};

use super::words::{Encryption, Trust};

/// The configuration of the client side. The provider is its own: that of the process stays as it is.
pub(super) fn client(encryption: &Encryption) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match encryption.trust {
        Trust::Unchecked => Arc::new(Lenient { inner: None, provider: Arc::clone(&provider) }),
        Trust::Authority => {
            let inner = Some(known_authorities(encryption, &provider)?);
            Arc::new(Lenient { inner, provider: Arc::clone(&provider) })
        }
        Trust::Host => known_authorities(encryption, &provider)?,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::setup(format!("cannot set up TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some((certificate, key)) = &encryption.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("sslcert", certificate)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("sslkey", key, &error))?;
    builder.with_client_auth_cert(chain, private).map_err(|error| {
        StoreError::setup(format!(
            "cannot use the client certificate: {error}; `sslkey` must be the private key of `sslcert`"
        ))
    })
}

fn known_authorities(
    encryption: &Encryption,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, StoreError> {
    let mut roots = RootCertStore::empty();
    match &encryption.root {
        Some(file) => {
            let found = certificates("sslrootcert", file)?;
            roots.add_parsable_certificates(found);
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|_| {
            StoreError::setup(
                "cannot check the certificate of the server: no root certificates found; name a \
                 file with them by `sslrootcert` in the database URL",
            )
        })
}

fn certificates(word: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unreadable(word, file, &error))?;
    if found.is_empty() {
        return Err(unreadable(word, file, &pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn unreadable(word: &str, file: &Path, error: &pem::Error) -> StoreError {
    let next = match error {
        pem::Error::Io(_) => "check its path and that relais may read it",
        _ => "it must be in PEM format, the private key without a password",
    };
    let file = file.display();
    StoreError::setup(format!("cannot read `{word}` from {file}: {error}; {next}"))
}

/// Checks the authority but not the host, or nothing. The handshake is checked in any case: the server
/// has the private key of the certificate it shows.
#[derive(Debug)]
struct Lenient {
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        // The name is checked last: an error about it means that everything else was right.
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
