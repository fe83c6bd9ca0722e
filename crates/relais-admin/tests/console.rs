//! The console in a real browser, inside the router of another service, under a path of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "written for the tests of the program")]
#[path = "../../relais-cli/tests/console/browser.rs"]
mod browser;

use std::{fs, net::SocketAddr, sync::Arc};

use axum::{Router, routing::get};
use browser::Browser;
use relais::{
    App, NewInbox, StoreDriver,
    log::LogPublisher,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{AdminParts, AdminToken, Role};
use serde_json::json;

/// Runs axe-core with all its rules.
const AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(
        (found) => done(found.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html)])),
        (error) => done(['axe-core failed', String(error)]))";

/// A service with its own page, and relais below `/ops/relais`; one message waits.
async fn serve(folder: &std::path::Path) -> SocketAddr {
    let path = folder.join("relais.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let store: Arc<dyn StoreDriver> = Arc::new(store);
    store.migrate().await.unwrap();
    let message = NewInbox::new("bank", "m-1", "Paid", r#"{"order": "o-1"}"#);
    store.accept(vec![message], Vec::new()).await.unwrap();
    let app = App::new(store).destination("orders", Arc::new(LogPublisher::stdout()));
    let token =
        AdminToken { name: "ann".into(), role: Role::Admin, ..AdminToken::shared("s3cret") };
    let parts = AdminParts::of(&app, vec![token]).await;
    let own = Router::new().route("/", get(async || "mine"));
    let service = own.nest("/ops/relais", relais_admin::router(parts));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let running = app.start();
    tokio::spawn(async move {
        let _running = running;
        let service = service.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).await
    });
    at
}

/// Opens a page and checks it with axe-core.
fn check(browser: &Browser, axe: Option<&str>, place: &str, words: &[&str]) {
    browser.go(place);
    browser.sees(words);
    browser.until("an end of loading", || {
        let ready = "return document.querySelector('main[aria-busy]') === null";
        (browser.script(ready, &[]) == true).then_some(())
    });
    if let Some(axe) = axe {
        browser.script(axe, &[]);
        assert_eq!(browser.script_later(AXE, &[]), json!([]), "{place}");
    }
}

#[test]
fn the_console_works_under_a_path_of_another_service() {
    let axe = std::env::var("RELAIS_TEST_AXE").map(|script| fs::read_to_string(script).unwrap());
    assert!(axe.is_ok() || std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_AXE");
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let at = runtime.block_on(serve(folder.path()));
    let Some(browser) = Browser::open_page(&format!("http://{at}/ops/relais")) else { return };
    browser.fill("Token", "s3cret");
    browser.press("Sign in");
    let axe = axe.as_deref().ok();
    check(&browser, axe, "#/", &["Overview", "Throughput", "orders"]);
    browser.until("a live stream", || {
        let state = "return document.querySelector('.live-state').dataset.state";
        (browser.script(state, &[]) == "live").then_some(())
    });
    check(&browser, axe, "#/inbox", &["Paid", "bank"]);
    check(&browser, axe, "#/inbox/1", &["Timeline", "o-1"]);
    const LOAD: &str = "
        const link = [...document.querySelectorAll('a')].find((one) => one.innerText === 'Download');
        const request = new XMLHttpRequest();
        request.open('GET', link.href, false);
        request.send();
        return [new URL(link.href).pathname, request.status, request.responseText.includes('o-1')]";
    let path = "/ops/relais/api/v1/inbox/1/payload";
    assert_eq!(browser.script(LOAD, &[]), json!([path, 200, true]));
    check(&browser, axe, "#/destinations", &["orders", "not contacted yet"]);
    check(&browser, axe, "#/destinations/orders", &["Circuit breaker", "Configuration"]);
    browser.press("Pause");
    browser.decide("Pause");
    browser.sees(&["Paused by ann: a test in a browser", "Resume"]);
    browser.reload();
    browser.sees(&["Paused by ann: a test in a browser"]);
    let violations = browser.script("return window.violations", &[]);
    assert_eq!(violations, json!([]), "the page requested nothing that its policy forbids");
    browser.press("Sign out");
    browser.sees(&["Sign in with a token"]);
}
