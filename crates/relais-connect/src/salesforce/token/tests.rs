//! Logins against a test server.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use relais_core::{
    async_trait,
    credential::{Credential, Credentials},
    store::StoreResult,
};
use serde_json::{Value, json};

use super::*;
use crate::salesforce::TokenKey;

/// Answers logins with the same status and body, and records the requests.
struct TokenServer {
    url: String,
    calls: Arc<AtomicUsize>,
    last: Arc<Mutex<String>>,
}

#[derive(Clone)]
struct ServerMode {
    status: u16,
    body: String,
    calls: Arc<AtomicUsize>,
    last: Arc<Mutex<String>>,
}

async fn answer(State(state): State<ServerMode>, body: String) -> (StatusCode, String) {
    let call = state.calls.fetch_add(1, Ordering::SeqCst);
    *state.last.lock().unwrap() = body;
    // Lets other tasks request meanwhile.
    tokio::task::yield_now().await;
    let body = state.body.replace("CALL", &call.to_string());
    (StatusCode::from_u16(state.status).unwrap(), body)
}

async fn serve(status: u16, body: impl Into<String>) -> TokenServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (calls, last) = (Arc::default(), Arc::default());
    let body = body.into().replace("URL", &url);
    let state = ServerMode { status, body, calls: Arc::clone(&calls), last: Arc::clone(&last) };
    let router = Router::new().route("/services/oauth2/token", post(answer)).with_state(state);
    tokio::spawn(async { axum::serve(listener, router).await });
    TokenServer { url, calls, last }
}

fn granted() -> String {
    json!({
        "access_token": "00D!token-CALL", "instance_url": "URL",
        "id": "https://login.salesforce.com/id/00Dxx0000001gPLEAY/005xx000001SwiUAAS",
        "refresh_token": "next-refresh-CALL",
    })
    .to_string()
}

fn client_credentials() -> Auth {
    Auth::ClientCredentials {
        client_id: "the app".into(),
        client_secret: SecretString::from("s3cret&text"),
    }
}

fn login(url: &str, auth: Auth) -> Result<Arc<LoginFlow>, String> {
    LoginFlow::new(&SalesforceSettings::new(url, auth, "Contact", "ExternalId__c")).map(Arc::new)
}

fn http() -> Client {
    Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

#[tokio::test]
async fn many_calls_at_once_make_one_login() {
    let server = serve(200, granted()).await;
    let (http, session) = (http(), SalesforceSession::default());
    let login = login(&server.url, client_credentials()).unwrap();
    let ask = || {
        let (http, session, login) = (http.clone(), session.clone(), Arc::clone(&login));
        tokio::spawn(async move { session.token(&http, &login).await.unwrap() })
    };
    let asked: Vec<_> = (0..20).map(|_| ask()).collect();
    for token in asked {
        assert_eq!(token.await.unwrap().access.expose_secret(), "00D!token-0");
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), 1);
    let sent = server.last.lock().unwrap().clone();
    let expected =
        "grant_type=client%5Fcredentials&client_id=the%20app&client_secret=s3cret%26text";
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_token_that_is_forgotten_or_too_old_is_replaced() {
    let server = serve(200, granted()).await;
    let (http, session) = (http(), SalesforceSession::default());
    let mut settings =
        SalesforceSettings::new(&server.url, client_credentials(), "Contact", "ExternalId__c");
    let long = Arc::new(LoginFlow::new(&settings).unwrap());
    let first = session.token(&http, &long).await.unwrap();
    assert_eq!(first.user_id.as_deref(), Some("005xx000001SwiUAAS"));
    session.forget(&first);
    let second = session.token(&http, &long).await.unwrap();
    // A caller with the first token does not drop the second.
    session.forget(&first);
    assert!(Arc::ptr_eq(&second, &session.token(&http, &long).await.unwrap()));
    assert_eq!(server.calls.load(Ordering::SeqCst), 2);
    settings.token_life = Duration::ZERO;
    let (short, other) =
        (Arc::new(LoginFlow::new(&settings).unwrap()), SalesforceSession::default());
    other.token(&http, &short).await.unwrap();
    other.token(&http, &short).await.unwrap();
    assert_eq!(server.calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_refused_login_is_not_repeated_and_shows_no_secret() {
    let body = json!({
        "error": "invalid_client",
        "error_description": "invalid client credentials s3cret&text",
    });
    let server = serve(400, body.to_string()).await;
    let (http, session) = (http(), SalesforceSession::default());
    let login = login(&server.url, client_credentials()).unwrap();
    for _ in 0..3 {
        let failure = session.token(&http, &login).await.err().unwrap();
        assert_eq!((failure.class, failure.problem.code.as_str()), (Class::Auth, "invalid_client"));
        assert!(failure.problem.message.contains("check the credentials"));
        assert!(failure.problem.message.contains("[hidden]"));
        assert!(!format!("{failure:?}").contains("s3cret"));
        assert_eq!(failure.after, Some(OPERATOR_PAUSE));
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_login_server_in_trouble_is_no_wrong_secret() {
    let http = http();
    for (status, body, class) in [
        (503, "<html>maintenance</html>", Class::Down),
        (500, "", Class::Down),
        (429, "", Class::Quota),
        (200, "<html>hello</html>", Class::Down),
        (200, "{}", Class::Down),
        (404, "", Class::Auth),
        (403, "<html>blocked</html>", Class::Down),
    ] {
        let server = serve(status, body).await;
        let login = login(&server.url, client_credentials()).unwrap();
        let failure = SalesforceSession::default().token(&http, &login).await.err().unwrap();
        assert_eq!(failure.class, class, "{status} {body}");
    }
    let login = login("http://127.0.0.1:1", client_credentials()).unwrap();
    let failure = SalesforceSession::default().token(&http, &login).await.err().unwrap();
    assert_eq!(failure.class, Class::Down);
}

/// A database with one credential.
#[derive(Default)]
struct MemoryCredentials(Mutex<(i64, Option<String>, Option<String>)>);

#[async_trait]
impl Credentials for MemoryCredentials {
    async fn take_credential(
        &self,
        _: String,
        owner: String,
        _: Duration,
    ) -> StoreResult<Option<Credential>> {
        let mut row = self.0.lock().unwrap();
        let taken = row.2.is_none().then(|| {
            row.2 = Some(owner);
            Credential { version: row.0, sealed: row.1.clone() }
        });
        Ok(taken)
    }

    async fn replace_credential(
        &self,
        _: String,
        owner: String,
        version: i64,
        sealed: String,
    ) -> StoreResult<bool> {
        let mut row = self.0.lock().unwrap();
        let holds = row.2.as_ref() == Some(&owner) && row.0 == version;
        if holds {
            *row = (version + 1, Some(sealed), None);
        }
        Ok(holds)
    }

    async fn release_credential(&self, _: String, owner: String) -> StoreResult<()> {
        self.0.lock().unwrap().2.take_if(|held| *held == owner);
        Ok(())
    }
}

fn refresh(url: &str) -> Arc<LoginFlow> {
    let auth = Auth::RefreshToken {
        client_id: "app".into(),
        client_secret: None,
        refresh_token: SecretString::from("first"),
    };
    login(url, auth).unwrap()
}

fn vault(memory: &Arc<MemoryCredentials>, key: &str) -> SalesforceSession {
    let key = TokenKey::new(&SecretString::from(key)).unwrap();
    SalesforceSession::with_vault(TokenVault::new(Arc::clone(memory) as Arc<dyn Credentials>, key))
}

const KEY: &str = "a key of more than thirty-two characters";

#[tokio::test]
async fn a_refresh_token_that_is_replaced_is_used_from_then_on_by_every_process() {
    let server = serve(200, granted()).await;
    let (http, memory, login) = (http(), Arc::default(), refresh(&server.url));
    let session = vault(&memory, KEY);
    let token = session.token(&http, &login).await.unwrap();
    assert!(server.last.lock().unwrap().contains("&refresh_token=first&"));
    session.forget(&token);
    session.token(&http, &login).await.unwrap();
    assert!(server.last.lock().unwrap().contains("&refresh_token=next%2Drefresh%2D0&"));
    // A process that starts later, and ten at once.
    let others: Vec<_> = (0..10).map(|_| vault(&memory, KEY)).collect();
    for other in &others {
        other.token(&http, &login).await.unwrap();
    }
    assert!(server.last.lock().unwrap().contains("&refresh_token=next%2Drefresh%2D10&"));
    assert!(!memory.0.lock().unwrap().1.as_ref().unwrap().contains("next"), "it is encrypted");
}

#[tokio::test]
async fn processes_that_log_in_at_once_take_turns() {
    let server = serve(200, granted()).await;
    let (http, memory, login) = (http(), Arc::default(), refresh(&server.url));
    let ask = || {
        let (http, session, login) = (http.clone(), vault(&memory, KEY), Arc::clone(&login));
        tokio::spawn(async move { session.token(&http, &login).await.map(drop) })
    };
    let asked: Vec<_> = (0..5).map(|_| ask()).collect();
    for done in asked {
        done.await.unwrap().unwrap();
    }
    assert_eq!(memory.0.lock().unwrap().0, 5, "each replaced what the one before had stored");
}

#[tokio::test]
async fn a_refresh_token_is_not_opened_with_another_key() {
    let server = serve(200, granted()).await;
    let (http, memory, login) = (http(), Arc::default(), refresh(&server.url));
    vault(&memory, KEY).token(&http, &login).await.unwrap();
    let other = vault(&memory, "another key of more than thirty-two characters");
    let failure = other.token(&http, &login).await.err().unwrap();
    assert_eq!(failure.problem.code, "REFRESH_TOKEN_SEALED");
    assert!(memory.0.lock().unwrap().2.is_none(), "the lease is given back");
}

#[tokio::test]
async fn a_replaced_refresh_token_that_cannot_be_kept_is_refused_with_the_reason() {
    let server = serve(200, granted()).await;
    let (http, session, login) = (http(), SalesforceSession::default(), refresh(&server.url));
    for _ in 0..2 {
        let failure = session.token(&http, &login).await.err().unwrap();
        assert_eq!(failure.problem.code, "REFRESH_TOKEN_ROTATES");
        assert!(failure.problem.message.contains("refresh_token_key"));
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), 1, "asking again would hide the reason");
    let same = granted().replace("next-refresh-CALL", "first");
    let server = serve(200, same).await;
    session_is_granted(&http, &refresh(&server.url)).await;
}

async fn session_is_granted(http: &Client, login: &Arc<LoginFlow>) {
    SalesforceSession::default().token(http, login).await.unwrap();
}

#[tokio::test]
async fn a_token_is_sent_to_safe_places_only() {
    let http = http();
    for place in ["ftp://x", "http://user:pw@x", "nowhere", ""] {
        let body = json!({"access_token": "a", "instance_url": place});
        let server = serve(200, body.to_string()).await;
        let login = login(&server.url, client_credentials()).unwrap();
        assert!(SalesforceSession::default().token(&http, &login).await.is_err(), "{place}");
    }
    let login = login("https://acme.my.salesforce.com", client_credentials()).unwrap();
    let body = json!({"access_token": "a", "instance_url": "http://acme.my.salesforce.com"});
    assert!(login.granted(body.to_string().as_bytes()).is_err());
}

#[test]
fn settings_without_who_we_are_are_refused() {
    let empty = Auth::ClientCredentials {
        client_id: String::new(),
        client_secret: SecretString::from("x"),
    };
    assert!(login("https://x", empty).err().unwrap().contains("client_id"));
    let no_key = Auth::JwtBearer {
        client_id: "app".into(),
        username: "u@example.org".into(),
        private_key: SecretString::from("-----BEGIN NONSENSE"),
        audience: None,
    };
    let why = login("https://x", no_key).err().unwrap();
    assert!(why.contains("private_key") && !why.contains("NONSENSE"));
}

#[tokio::test]
async fn a_claim_is_signed_and_names_the_login_server() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let server = serve(200, granted()).await;
    let auth = Auth::JwtBearer {
        client_id: "app".into(),
        username: "u@example.org".into(),
        private_key: SecretString::from(pair.serialize_pem()),
        audience: None,
    };
    let login = login(&server.url, auth).unwrap();
    SalesforceSession::default().token(&http(), &login).await.unwrap();
    let sent = server.last.lock().unwrap().clone();
    let (_, assertion) = sent.split_once("&assertion=").unwrap();
    let assertion = assertion.replace("%2E", ".").replace("%2D", "-").replace("%5F", "_");
    let parts: Vec<&str> = assertion.split('.').collect();
    let claims = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "app");
    assert_eq!(claims["sub"], "u@example.org");
    assert_eq!(claims["aud"], "https://login.salesforce.com");
    let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
    assert_eq!(signature.len(), 256);
}

#[test]
fn sandboxes_have_a_login_server_of_their_own() {
    let of = |url: &str| audience_of(&Url::parse(url).unwrap());
    assert_eq!(of("https://acme.my.salesforce.com"), "https://login.salesforce.com");
    assert_eq!(of("https://acme--dev.sandbox.my.salesforce.com"), "https://test.salesforce.com");
    assert_eq!(of("https://test.salesforce.com"), "https://test.salesforce.com");
}
