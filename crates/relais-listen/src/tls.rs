//! Certificates from files, reloaded when they change.
//!
//! Invariant: an unreadable file, or a certificate and key that do not match, changes
//! nothing: connections keep the certificate that was loaded before, and the log shows the reason.

use std::{
    error::Error,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Minimum interval between two checks of the files; they are checked when a client connects.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificate chain and the private key of a listener, in PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Mutex<LoadedCertificate>>,
}

#[derive(Debug)]
struct LoadedCertificate {
    config: Arc<ServerConfig>,
    /// Times and sizes of the files at the last read, successful or not.
    stamps: FileStamps,
    checked_at: Instant,
}

type FileStamps = [Option<(SystemTime, u64)>; 2];

/// A certificate or key that cannot be used. The text names the file and what to do.
#[derive(Debug)]
pub struct TlsError {
    text: String,
    cause: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

impl Tls {
    /// Loads the certificate and the key.
    ///
    /// # Errors
    /// The error names the file and what to do.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let stamps = [stamp(certificate), stamp(key)];
        let config = read(certificate, key)?;
        let current = LoadedCertificate { config, stamps, checked_at: Instant::now() };
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: Arc::new(Mutex::new(current)),
        })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = self.config(Instant::now());
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Returns the current configuration. The files are small and local, and checked at most once a
    /// second.
    fn config(&self, now: Instant) -> Arc<ServerConfig> {
        let mut current = self.lock();
        if now.duration_since(current.checked_at) < CHECK_INTERVAL {
            return Arc::clone(&current.config);
        }
        current.checked_at = now;
        let found = [stamp(&self.certificate), stamp(&self.key)];
        if found != current.stamps {
            current.stamps = found;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    current.config = config;
                    tracing::info!("reloaded the TLS certificate {}", self.certificate.display());
                }
                Err(error) => tracing::warn!("kept the previous TLS certificate: {error}"),
            }
        }
        Arc::clone(&current.config)
    }

    fn lock(&self) -> MutexGuard<'_, LoadedCertificate> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |file: &Path, what: &str, cause: pem::Error| {
        let file = file.display();
        let text = format!(
            "cannot read the {what} from {file}: {cause}; it must be a readable file in PEM format"
        );
        TlsError { text, cause: Box::new(cause) }
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    // A file without a certificate is read without an error.
    let chain = chain.and_then(|chain| match chain.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(chain),
    });
    let chain = chain.map_err(|error| wrong(certificate, "TLS certificate", error))?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong(key, "private key of the TLS certificate", error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| {
            let (certificate, key) = (certificate.display(), key.display());
            let text =
                format!("cannot use the TLS certificate {certificate} with the key {key}: {error}");
            TlsError { text, cause: Box::new(error) }
        })?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn files_are_reloaded_when_they_change_and_invalid_ones_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        assert!(Tls::load(&certificate, &key).unwrap_err().to_string().contains("cert.pem"));
        write(folder.path());
        let tls = Tls::load(&certificate, &key).unwrap();
        let mut now = Instant::now();
        let mut reload = || {
            now += CHECK_INTERVAL;
            tls.config(now)
        };
        let first = reload();
        assert!(Arc::ptr_eq(&first, &reload()), "nothing changed");
        fs::write(&key, "nonsense").unwrap();
        assert!(Arc::ptr_eq(&first, &reload()), "an invalid file is not used");
        write(folder.path());
        assert!(!Arc::ptr_eq(&first, &reload()));
        fs::write(&certificate, "nonsense").unwrap();
        let error = Tls::load(&certificate, &key).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the TLS certificate from"), "{error}");
    }
}
