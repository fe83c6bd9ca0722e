//! `tls_certificate` and `tls_key`: listeners over TLS.

use std::path::{Path, PathBuf};

use super::{
    reader::Section,
    types::{Origin, Settings},
};

/// The certificate of a listener, in PEM files.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Returns `http`, or `https` with a certificate.
pub(crate) fn scheme(tls: Option<&TlsFiles>) -> &'static str {
    tls.map_or("http", |_| "https")
}

impl Settings {
    /// Returns the scheme of the URLs of a source.
    pub(crate) fn scheme_of(&self, source: &str) -> &'static str {
        let found = self.sources.iter().find(|one| one.name == source);
        match found.map(|found| &found.origin) {
            Some(Origin::Http(http)) => scheme(http.tls.as_ref()),
            _ => scheme(None),
        }
    }
}

/// Reads both keys, or none.
pub(super) fn tls(section: &Section<'_>, folder: &Path) -> Option<TlsFiles> {
    let file = |key| section.name(key).map(|name| folder.join(name));
    match (file("tls_certificate"), file("tls_key")) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (Some(_), None) => {
            section.error("tls_certificate", "needs `tls_key`, the file with its private key");
            None
        }
        (None, Some(_)) => {
            section.error("tls_key", "needs `tls_certificate`, the file with its certificate");
            None
        }
        (None, None) => None,
    }
}
