//! Encrypted connections, with an authority of our own and certificates of clients.

use std::{path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use relais_core::{inspect::Inspect, store::StoreError};
use relais_store::postgres::{PostgresOptions, PostgresStore};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{
    cluster::{Cluster, Programs},
    work::{deliver, prepare},
};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for a name, and its private key.
fn issue(by: &Authority, name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

struct Bed {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

impl Bed {
    fn start(programs: Programs) -> Self {
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        let (server, server_key) = issue(&ours, "localhost");
        let (client, client_key) = issue(&ours, "guest");
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("ca.pem", ours.pem()),
            ("other-ca.pem", theirs.pem()),
            ("client.pem", client),
            ("client-key.pem", client_key),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let settings = "ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server-key.pem'\n\
                        ssl_ca_file = 'ca.pem'\n";
        let rules = "hostssl all guest 127.0.0.1/32 cert\n\
                     hostnossl all plain 127.0.0.1/32 trust\n\
                     host all postgres 127.0.0.1/32 trust\n";
        let files = [
            ("server.pem", server.as_str()),
            ("server-key.pem", server_key.as_str()),
            ("ca.pem", &ours.pem()),
        ];
        Self { cluster: Cluster::start_with(programs, settings, rules, &files), folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn url(&self, user: &str, host: &str, words: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres?{words}", self.cluster.port)
    }

    async fn connect(
        &self,
        user: &str,
        host: &str,
        words: &str,
    ) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect(&self.url(user, host, words), PostgresOptions::default()).await
    }

    /// Checks that every session of relais is encrypted, or none.
    async fn assert_encrypted(&self, expected: bool) {
        let sql = "SELECT bool_and(ssl), bool_or(ssl) FROM pg_stat_ssl
                   JOIN pg_stat_activity USING (pid) WHERE application_name = 'relais'";
        let row = self.cluster.client().await.query_one(sql, &[]).await.unwrap();
        let (all, any): (bool, bool) = (row.get(0), row.get(1));
        assert_eq!((all, any), (expected, expected));
    }
}

async fn warnings(store: &PostgresStore) -> Vec<String> {
    store.describe().await.unwrap().warnings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_checked_as_the_url_says() {
    let Some(programs) = Programs::find() else { return };
    let bed = Bed::start(programs);
    let (ca, other) = (bed.file("ca.pem"), bed.file("other-ca.pem"));
    let full = format!("sslmode=verify-full&sslrootcert={ca}");
    let store = bed.connect("postgres", "localhost", &full).await.unwrap();
    prepare(&store).await;
    assert_eq!(deliver(&store, "out", 3).await, 3);
    bed.assert_encrypted(true).await;
    drop(store);
    // The certificate is for `localhost`.
    let error = bed.connect("postgres", "127.0.0.1", &full).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Setup(text) if text.contains("host of the URL")),
        "{error}"
    );
    let by_authority = format!("sslmode=verify-ca&sslrootcert={ca}");
    bed.connect("postgres", "127.0.0.1", &by_authority).await.unwrap();
    for mode in ["verify-full", "verify-ca", "require"] {
        let words = format!("sslmode={mode}&sslrootcert={other}");
        let error = bed.connect("postgres", "localhost", &words).await.unwrap_err();
        let advice = "`sslrootcert` must name";
        assert!(matches!(&error, StoreError::Setup(text) if text.contains(advice)), "{error}");
    }
    for words in ["sslmode=require", "sslmode=prefer", ""] {
        let store = bed.connect("postgres", "127.0.0.1", words).await.unwrap();
        assert!(warnings(&store).await.is_empty(), "{words}");
        bed.assert_encrypted(true).await;
    }
    let store = bed.connect("postgres", "127.0.0.1", "sslmode=disable").await.unwrap();
    assert!(warnings(&store).await.is_empty());
    // A rule for plain connections only.
    let client = bed.cluster.client().await;
    client.batch_execute("CREATE ROLE plain LOGIN").await.unwrap();
    let store = bed.connect("plain", "127.0.0.1", "sslmode=prefer").await.unwrap();
    assert_eq!(warnings(&store).await.len(), 1);
    let missing = format!("{full}x");
    let error = bed.connect("postgres", "localhost", &missing).await.unwrap_err();
    assert!(error.to_string().contains("cannot read `sslrootcert`"), "{error}");
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let Some(programs) = Programs::find() else { return };
    let bed = Bed::start(programs);
    bed.cluster.client().await.batch_execute("CREATE ROLE guest LOGIN SUPERUSER").await.unwrap();
    let full = format!("sslmode=verify-full&sslrootcert={}", bed.file("ca.pem"));
    let error = bed.connect("guest", "localhost", &full).await.unwrap_err();
    assert!(matches!(&error, StoreError::Setup(text) if text.contains("certificate")), "{error}");
    let (certificate, key) = (bed.file("client.pem"), bed.file("client-key.pem"));
    let own = format!("{full}&sslcert={certificate}&sslkey={key}");
    let store = bed.connect("guest", "localhost", &own).await.unwrap();
    prepare(&store).await;
    let swapped = format!("{full}&sslcert={certificate}&sslkey={certificate}");
    let error = bed.connect("guest", "localhost", &swapped).await.unwrap_err();
    assert!(error.to_string().contains("`sslkey`"), "{error}");
    // The same by configurations of the driver and of rustls.
    let config = bed.url("postgres", "localhost", "sslmode=disable").parse().unwrap();
    let tls = trusting(Path::new(&bed.file("ca.pem")));
    let options = PostgresOptions::default();
    let by_config = PostgresStore::from_config(config, Some(tls), options).await.unwrap();
    by_config.check().await.unwrap();
    bed.assert_encrypted(true).await;
}

fn trusting(file: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[tokio::test]
async fn a_server_without_tls_is_used_with_a_warning_unless_that_is_intended() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let connect = |mode: &str| {
        let url = cluster.url().replace("sslmode=disable", mode);
        async move { PostgresStore::connect(&url, PostgresOptions::default()).await }
    };
    let [warning] = &warnings(&connect("sslmode=prefer").await.unwrap()).await[..] else {
        panic!()
    };
    assert!(warning.contains("without encryption") && warning.contains("verify-full"), "{warning}");
    assert!(warnings(&connect("sslmode=disable").await.unwrap()).await.is_empty());
    let error = connect("sslmode=require").await.unwrap_err();
    assert!(matches!(&error, StoreError::Setup(text) if text.contains("turn `ssl` on")), "{error}");
}
