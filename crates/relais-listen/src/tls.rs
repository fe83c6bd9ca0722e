//! Certificates from files, read again when they change.
//!
//! Invariant: a file that cannot be read, or whose certificate and key do not belong together, changes
//! nothing: connections go on with what was read before, and the log says why.

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

/// How often the files are looked at, at most: when a connection comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate chain and the private key of a listener, in PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Mutex<Current>>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// Times and sizes of the files that were read last, with or without success.
    seen: Seen,
    looked_at: Instant,
}

type Seen = [Option<(SystemTime, u64)>; 2];

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
    /// Reads the files.
    ///
    /// # Errors
    /// Says which file is wrong, and what to do.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let seen = [seen(certificate), seen(key)];
        let config = read(certificate, key)?;
        let current = Current { config, seen, looked_at: Instant::now() };
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

    /// What is valid now. The files are small and local, and looked at once a second at most.
    fn config(&self, now: Instant) -> Arc<ServerConfig> {
        let mut current = self.lock();
        if now.duration_since(current.looked_at) < LOOK_EVERY {
            return Arc::clone(&current.config);
        }
        current.looked_at = now;
        let found = [seen(&self.certificate), seen(&self.key)];
        if found != current.seen {
            current.seen = found;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    current.config = config;
                    tracing::info!("read the TLS certificate {} again", self.certificate.display());
                }
                Err(error) => tracing::warn!("kept the TLS certificate from before: {error}"),
            }
        }
        Arc::clone(&current.config)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seen(file: &Path) -> Option<(SystemTime, u64)> {
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
    fn files_are_read_again_when_they_change_and_wrong_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        assert!(Tls::load(&certificate, &key).unwrap_err().to_string().contains("cert.pem"));
        write(folder.path());
        let tls = Tls::load(&certificate, &key).unwrap();
        let mut now = Instant::now();
        let mut look = || {
            now += LOOK_EVERY;
            tls.config(now)
        };
        let first = look();
        assert!(Arc::ptr_eq(&first, &look()), "nothing changed");
        fs::write(&key, "nonsense").unwrap();
        assert!(Arc::ptr_eq(&first, &look()), "what is wrong is not used");
        write(folder.path());
        assert!(!Arc::ptr_eq(&first, &look()));
    }
}
