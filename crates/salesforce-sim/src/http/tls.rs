//! TLS of the second listener.

use std::{io, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

/// Reads the certificates and the key from one PEM text.
pub(super) fn acceptor(pem: &str) -> io::Result<TlsAcceptor> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates =
        certificates.map_err(|error| wrong(format!("cannot read the TLS certificate: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong("the TLS file has no certificate: put it before the key".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| wrong("the TLS file has no private key: add it, as PEM".to_owned()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| wrong(format!("the TLS key does not fit the certificate: {error}")))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
