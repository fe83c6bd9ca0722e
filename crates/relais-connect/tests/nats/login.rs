//! TLS, the ways to log in, and permissions.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair as TlsKey};
use relais_connect::nats::{NatsConnection, NatsPublisher, NatsPublisherSettings};
use relais_core::{delivery::Delivery, publisher::Publisher, setting::HiddenText};
use relais_testkit::connector::{outbox_row, soon};
use serde_json::{Value, json};

use super::server::OwnServer;

/// These servers have no JetStream: a message of a logged-in user gets no answer.
const LOGGED_IN: &str = "NATS_NOT_READY";
const REFUSED: &str = "NATS_AUTHENTICATION";

async fn publish(connection: NatsConnection, subject: &str) -> Delivery {
    let settings = NatsPublisherSettings::new("orders", connection, subject.parse().unwrap());
    let publisher = NatsPublisher::new(settings).unwrap();
    let deliveries = soon("it answers", publisher.publish(&[outbox_row(0, "k")])).await;
    deliveries.into_iter().next().unwrap()
}

async fn code(connection: NatsConnection) -> String {
    let delivery = publish(connection, "orders").await;
    delivery.problem().unwrap().0.code.clone()
}

fn connection(server: &OwnServer, start: &str) -> NatsConnection {
    NatsConnection::new(&format!("{start}localhost:{}", server.port)).unwrap()
}

#[tokio::test]
async fn a_token_and_an_encoded_password_are_logins() {
    let config = "authorization { token: \"t&ken\" }";
    let Some(server) = OwnServer::start(config, |_| {}).await else { return };
    assert_eq!(code(connection(&server, "nats://t%26ken@")).await, LOGGED_IN);
    assert_eq!(code(connection(&server, "nats://other@")).await, REFUSED);
    assert_eq!(code(connection(&server, "nats://")).await, REFUSED);
    let config = "authorization { user: a, password: \"p@ss\" }";
    let Some(server) = OwnServer::start(config, |_| {}).await else { return };
    assert_eq!(code(connection(&server, "nats://a:p%40ss@")).await, LOGGED_IN);
}

#[tokio::test]
async fn an_nkey_is_a_login() {
    let (known, other) = (KeyPair::new_user(), KeyPair::new_user());
    let config = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", known.public_key());
    let Some(server) = OwnServer::start(&config, |_| {}).await else { return };
    for (key, expected) in [(known, LOGGED_IN), (other, REFUSED)] {
        let nkey = Some(HiddenText::hide(key.seed().unwrap()).unwrap());
        let connection = NatsConnection { nkey, ..connection(&server, "nats://") };
        assert_eq!(code(connection).await, expected);
    }
}

/// Returns a token of NATS: JSON that is signed by an nkey.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "name": "test",
        "sub": subject.public_key(), "nats": nats,
    });
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(head), encode(claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn a_credentials_file_is_a_login() {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let user = KeyPair::new_user();
    let operator_token = token(&operator, &operator, json!({"type": "operator", "version": 2}));
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1,
    });
    let account_token =
        token(&operator, &account, json!({"limits": limits, "type": "account", "version": 2}));
    let user_claims = json!({
        "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
    });
    let user_token = token(&account, &user, user_claims);
    let config = format!(
        "operator: {operator_token}\nresolver: MEMORY\n\
         resolver_preload: {{ {}: {account_token} }}\n",
        account.public_key()
    );
    let write = |folder: &Path| {
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(folder.join("user.creds"), text).unwrap();
    };
    let Some(server) = OwnServer::start(&config, write).await else { return };
    let credentials = Some(server.path("user.creds"));
    let with_file = NatsConnection { credentials, ..connection(&server, "nats://") };
    assert_eq!(code(with_file).await, LOGGED_IN);
    assert_eq!(code(connection(&server, "nats://")).await, REFUSED);
}

/// Writes an authority with certificates of the server and of a client.
fn certify(folder: &Path) {
    let write = |file: &str, text: String| fs::write(folder.join(file), text).unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = TlsKey::generate().unwrap();
    write("ca.pem", authority.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(authority, key);
    for (name, subject) in [("server", "localhost"), ("client", "relais.example")] {
        let key = TlsKey::generate().unwrap();
        let params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{name}-key.pem"), key.serialize_pem());
    }
}

const TLS: &str = "tls { cert_file: \"{folder}/server.pem\", key_file: \"{folder}/server-key.pem\", \
                   ca_file: \"{folder}/ca.pem\"";

#[tokio::test]
async fn messages_go_over_tls_with_a_private_authority() {
    let Some(server) = OwnServer::start(&format!("{TLS} }}"), certify).await else { return };
    let tls_ca = Some(server.path("ca.pem"));
    let trusted = NatsConnection { tls_ca, ..connection(&server, "tls://") };
    assert_eq!(code(trusted).await, LOGGED_IN);
    let unknown = publish(connection(&server, "tls://"), "orders").await;
    let Delivery::Misconfigured { problem, .. } = &unknown else { panic!("{unknown:?}") };
    assert_eq!(problem.code, "NATS_TLS", "{problem:?}");
}

#[tokio::test]
async fn a_client_certificate_is_a_login() {
    let config = format!(
        "{TLS}, verify_and_map: true }}\nauthorization {{ users: [ {{ user: relais.example }} ] }}"
    );
    let Some(server) = OwnServer::start(&config, certify).await else { return };
    let tls_ca = Some(server.path("ca.pem"));
    let anonymous = NatsConnection { tls_ca, ..connection(&server, "tls://") };
    let known = NatsConnection {
        tls_certificate: Some(server.path("client.pem")),
        tls_key: Some(server.path("client-key.pem")),
        ..anonymous.clone()
    };
    assert_eq!(code(known).await, LOGGED_IN);
    assert_ne!(code(anonymous).await, LOGGED_IN);
}

#[tokio::test]
async fn a_forbidden_subject_pauses_the_destination_only_if_every_message_has_it() {
    let config = "authorization { users: [ { user: a, password: b, \
                  permissions: { publish: { deny: \"secret.>\" } } } ] }";
    let Some(server) = OwnServer::start(config, |_| {}).await else { return };
    let connection = connection(&server, "nats://a:b@");
    let fixed = publish(connection.clone(), "secret.orders").await;
    assert!(matches!(fixed, Delivery::Misconfigured { after: Some(_), .. }), "{fixed:?}");
    let rejected = publish(connection, "secret.{{event_type}}").await;
    let Delivery::Reject { problem } = &rejected else { panic!("{rejected:?}") };
    assert_eq!(problem.code, "NATS_FORBIDDEN");
    assert!(problem.message.contains("secret.OrderCreated"), "{problem:?}");
}

#[tokio::test]
async fn a_server_without_jetstream_is_an_outage() {
    let Some(server) = OwnServer::start("", |_| {}).await else { return };
    let delivery = publish(connection(&server, "nats://"), "orders").await;
    assert!(matches!(delivery, Delivery::Outage { .. }), "{delivery:?}");
}
