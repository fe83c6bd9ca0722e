//! The TLS side of a connection: trusted authorities and the client's certificate.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::peer::AmqpTlsFiles;

/// Returns the client side of TLS. The error names the file that cannot be used.
pub(super) fn connector(files: &AmqpTlsFiles) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &files.ca {
        roots.add_parsable_certificates(certificates("tls_ca", file)?);
    }
    // The provider is its own: that of the process stays as it is.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_root_certificates(roots);
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unreadable("tls_key", key, &error))?;
            let chain = certificates("tls_certificate", certificate)?;
            builder.with_client_auth_cert(chain, private).map_err(|error| {
                format!("cannot use the client certificate: {error}; `tls_key` must be its key")
            })?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("give both `tls_certificate` and `tls_key`, or neither".to_owned()),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(key: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unreadable(key, file, &error))?;
    if found.is_empty() {
        return Err(format!("`{key}` {} has no certificate in PEM format", file.display()));
    }
    Ok(found)
}

fn unreadable(key: &str, file: &Path, error: &rustls::pki_types::pem::Error) -> String {
    format!("cannot read `{key}` {}: {error}", file.display())
}
