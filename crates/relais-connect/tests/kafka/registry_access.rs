//! Logins and certificates of a schema registry.

use std::path::Path;

use relais_connect::{
    SecretString,
    kafka::{SchemaRegistry, SchemaRegistrySettings},
};

use crate::{
    outgoing,
    registry_server::{Gate, GateMode, Registry},
};

async fn probe(settings: &SchemaRegistrySettings) -> Result<String, String> {
    SchemaRegistry::new(settings).unwrap().probe().await.map_err(String::from)
}

#[tokio::test]
async fn a_login_is_sent_and_never_shown() {
    let Some(real) = Registry::new("logins of the registry") else { return };
    let gate = Gate::before(&real, GateMode::Login("Basic cmVsYWlzOmh1bnRlcjI=")).await;
    let plain = SchemaRegistrySettings::new(&gate.registry.url);
    let refused = probe(&plain).await.unwrap_err();
    assert!(refused.contains("401") && refused.contains("registry_user"), "{refused}");
    let basic = SchemaRegistrySettings {
        user: Some("relais".to_owned()),
        password: Some(SecretString::from("hunter2")),
        ..plain.clone()
    };
    assert!(probe(&basic).await.unwrap().contains("answers and has"));
    gate.set(GateMode::Login("Bearer hunter2"));
    let refused = probe(&basic).await.unwrap_err();
    let bearer =
        SchemaRegistrySettings { token: Some(SecretString::from("hunter2")), ..plain.clone() };
    assert!(probe(&bearer).await.unwrap().contains("answers and has"));
    let shown = format!("{basic:?} {bearer:?} {:?} {refused}", SchemaRegistry::new(&bearer));
    assert!(!shown.contains("hunter2") && !shown.contains("cmVsYWlz"), "{shown}");
}

#[tokio::test]
async fn an_own_authority_is_trusted_instead_of_those_of_the_system() {
    let what = "TLS of the registry";
    let Some(url) = outgoing::server("RELAIS_TEST_REGISTRY_SECURE", what) else { return };
    let Some(folder) = outgoing::server("RELAIS_TEST_REGISTRY_CERTIFICATES", what) else { return };
    let system = SchemaRegistrySettings::new(&url);
    let own = SchemaRegistrySettings {
        tls_ca: Some(Path::new(&folder).join("ca.pem")),
        ..system.clone()
    };
    assert!(probe(&own).await.unwrap().contains("answers and has"));
    let other =
        SchemaRegistrySettings { tls_ca: Some(Path::new(&folder).join("client.pem")), ..system };
    let refused = probe(&other).await.unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    assert!(refused.contains("check `registry_tls_ca`"), "{refused}");
    let missing = SchemaRegistrySettings { tls_ca: Some("/nonexistent.pem".into()), ..other };
    let error = SchemaRegistry::new(&missing).unwrap_err().to_string();
    assert!(error.contains("cannot read /nonexistent.pem"), "{error}");
}

#[tokio::test]
async fn an_address_without_a_registry_is_explained() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let refused = probe(&SchemaRegistrySettings::new(&format!("http://{address}"))).await;
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("cannot read subjects") && refused.contains("registry_url"),
        "{refused}"
    );
    for (url, why) in [
        ("registry:8081", "is not a url"),
        ("http://me:secret@registry:8081", "has a login in it"),
        ("http://registry:8081/?key=secret", "has a query"),
    ] {
        let error = SchemaRegistry::new(&SchemaRegistrySettings::new(url)).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    }
}
