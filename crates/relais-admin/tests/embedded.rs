//! The program of docs/embedding.md: it runs, and the page shows the same text.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, unreachable_pub, reason = "its `main` is not called here")]
#[path = "../examples/embedded.rs"]
mod embedded;

use std::time::Duration;

use reqwest::StatusCode;
use tokio::{net::TcpListener, sync::oneshot, time::Instant};

/// Time limit of any condition.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_page_shows_the_program() {
    let page = include_str!("../../../docs/embedding.md");
    let program = include_str!("../examples/embedded.rs");
    let (_, program) = program.split_once("\n\n").unwrap();
    let block = page.split("```").find(|block| block.starts_with("rust,no_run\n")).unwrap();
    let block = block.trim_start_matches("rust,no_run\n");
    assert!(block == program, "docs/embedding.md must show examples/embedded.rs as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_delivered_by_the_embedded_relais() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { stopped.await.unwrap_or_default() };
    let serving = tokio::spawn(async move { embedded::serve(&path, listener, stopped).await });
    let http = reqwest::Client::new();

    let order = http.post(format!("{at}/orders")).header("content-type", "application/json");
    let order = order.body(r#"{"order_id": "o-1"}"#).send().await.unwrap();
    assert_eq!(order.status(), StatusCode::CREATED);
    let ready = http.get(format!("{at}/ops/relais/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::OK);
    assert!(ready.text().await.unwrap().contains(r#""store":"ok""#));
    let console = http.get(format!("{at}/ops/relais")).send().await.unwrap();
    assert!(console.text().await.unwrap().contains("console/app.js"));

    let delivered = r#"relais_delivered_total{destination="orders",result="dispatched"} 1"#;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = http.get(format!("{at}/ops/relais/metrics")).bearer_auth("s3cret");
        let metrics = metrics.send().await.unwrap().text().await.unwrap();
        if metrics.contains(delivered) {
            break;
        }
        assert!(Instant::now() < deadline, "{delivered} is not in\n{metrics}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
