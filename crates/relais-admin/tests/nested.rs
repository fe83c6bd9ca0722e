//! All routes nested in the router of another service, under a path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, routing::get};
use relais::{
    App,
    log::LogPublisher,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{AdminParts, AdminToken, Role};
use reqwest::{Response, StatusCode, header, redirect::Policy};

struct Service {
    at: SocketAddr,
    http: reqwest::Client,
    _directory: tempfile::TempDir,
}

impl Service {
    /// Nested as `nest` does it, or as `nest_service` does.
    async fn start(tokens: Vec<AdminToken>, as_service: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relais.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let app = App::new(Arc::new(store)).destination("orders", Arc::new(LogPublisher::stdout()));
        let parts = AdminParts::of(&app, tokens).await;
        let own = Router::new().route("/", get(async || "mine"));
        let router = relais_admin::router(parts);
        let service = match as_service {
            true => own.nest_service("/ops/relais", router),
            false => own.nest("/ops/relais", router),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let running = app.start();
        tokio::spawn(async move {
            let _running = running;
            let service = service.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await
        });
        let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        Self { at, http, _directory: directory }
    }

    async fn get(&self, path: &str) -> Response {
        self.http.get(format!("http://{}{path}", self.at)).send().await.unwrap()
    }
}

fn token() -> AdminToken {
    AdminToken { name: "ann".into(), role: Role::Admin, ..AdminToken::shared("s3cret") }
}

fn text(response: &Response, name: header::HeaderName) -> &str {
    response.headers()[name].to_str().unwrap()
}

async fn check_pages(service: &Service) {
    assert_eq!(service.get("/").await.text().await.unwrap(), "mine");
    let page = service.get("/ops/relais").await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(text(&page, header::CONTENT_SECURITY_POLICY).contains("script-src 'self'"));
    // Every file that the page names is found relative to the page.
    let page = page.text().await.unwrap();
    let mut names: Vec<&str> =
        page.split(['"']).filter(|word| word.starts_with("relais/console/")).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 5, "{names:?}");
    for name in names {
        let file = service.get(&format!("/ops/{name}")).await;
        assert_eq!(file.status(), StatusCode::OK, "{name}");
    }
    for open in ["healthz", "readyz"] {
        assert_eq!(service.get(&format!("/ops/relais/{open}")).await.status(), StatusCode::OK);
    }
    let nothing = service.get("/ops/relais/nothing").await;
    assert_eq!(nothing.status(), StatusCode::NOT_FOUND);
    assert!(nothing.text().await.unwrap().contains("no route `"));
}

async fn check_session(service: &Service) {
    let base = format!("http://{}/ops/relais", service.at);
    let denied = service.get("/ops/relais/api/v1/overview").await;
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    let login =
        service.http.post(format!("{base}/login")).header(header::CONTENT_TYPE, "application/json");
    let login = login.body(r#"{"token": "s3cret"}"#).send().await.unwrap();
    assert_eq!(login.status(), StatusCode::OK);
    let cookie = text(&login, header::SET_COOKIE).to_owned();
    assert!(cookie.contains("; Path=/ops/relais/;"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with =
        |path: &str| service.http.get(format!("{base}{path}")).header(header::COOKIE, &cookie);
    let session = with("/api/v1/session").send().await.unwrap();
    assert!(session.text().await.unwrap().contains("ann"));
    let openapi = with("/api/openapi.json").send().await.unwrap().text().await.unwrap();
    assert!(openapi.contains(r#""servers":[{"url":"/ops/relais"}]"#), "{openapi}");
    let metrics = with("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"relais_destination_info{destination="orders""#), "{metrics}");
    // The stream begins at once with what was counted.
    let mut stream = with("/api/v1/live").send().await.unwrap();
    assert_eq!(text(&stream, header::CONTENT_TYPE), "text/event-stream");
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("event:"), "{first:?}");
    let logout = service.http.post(format!("{base}/logout")).send().await.unwrap();
    assert!(text(&logout, header::SET_COOKIE).contains("; Path=/ops/relais/; Max-Age=0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn console_api_health_and_metrics_work_under_a_path() {
    for as_service in [false, true] {
        let service = Service::start(vec![token()], as_service).await;
        check_pages(&service).await;
        if as_service {
            let page = service.get("/ops/relais/").await.text().await.unwrap();
            assert!(page.contains(r#"src="console/app.js""#), "{page}");
        }
        check_session(&service).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_only_this_machine_is_answered() {
    let service = Service::start(Vec::new(), false).await;
    let overview = service.get("/ops/relais/api/v1/session").await;
    assert_eq!(overview.status(), StatusCode::OK, "from this machine");

    // A service that does not know its peers: they could be on any machine.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("relais.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let app = App::new(Arc::new(store));
    let router = relais_admin::router(AdminParts::of(&app, Vec::new()).await);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let ask = async |path: &str| reqwest::get(format!("http://{at}{path}")).await.unwrap();
    let refused = ask("/api/v1/session").await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(refused.text().await.unwrap().contains("into_make_service_with_connect_info"));
    assert_eq!(ask("/healthz").await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_its_own_metrics_page_adds_ours() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("relais.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let running = App::new(Arc::new(store.clone()))
        .destination("orders", Arc::new(LogPublisher::stdout()))
        .start();
    let overview = store.overview().await.unwrap();
    let page = relais_admin::metrics::render(&running.observer(), Some(&overview));
    for line in ["relais_store_up 1\n", "relais_dead_letters_open 0\n", "relais_delivered_total{"] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    let alone = relais_admin::metrics::render(&running.observer(), None);
    assert!(alone.contains("relais_store_up 0\n") && !alone.contains("relais_dead_letters_open"));
    running.stop().await;
}
