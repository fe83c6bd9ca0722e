//! A web service with the workers, the console, the API, health and metrics of relais inside.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use relais::{
    App, Health, HealthCheck, Message, Outbox, Store,
    log::LogPublisher,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{AdminParts, AdminToken, Role};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

#[derive(Message, serde::Serialize, serde::Deserialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPlaced {
    order_id: String,
    cents: i64,
}

#[derive(Clone)]
struct Service {
    pool: SqlitePool,
    health: HealthCheck,
}

/// The order and its message exist together, or not at all.
async fn place(State(service): State<Service>, Json(order): Json<OrderPlaced>) -> StatusCode {
    let placed = async {
        let mut tx = service.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO orders (id, cents) VALUES (?, ?)")
            .bind(&order.order_id)
            .bind(order.cents)
            .execute(&mut *tx)
            .await?;
        Outbox::to("orders").send(&mut tx, &order).await?;
        tx.commit().await?;
        anyhow::Ok(())
    };
    match placed.await {
        Ok(()) => StatusCode::CREATED,
        Err(error) => {
            tracing::warn!("order not placed: {error:#}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// For the probe of Kubernetes: the service is ready when its workers are.
async fn ready(State(service): State<Service>) -> (StatusCode, Json<Health>) {
    let health = service.health.health().await;
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health))
}

/// Serves until `stop` is `true`.
pub async fn serve(
    database: &Path,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    // 1. Tables, before anything reads them: those of relais, then those of the service.
    let store = SqliteStore::open(database, SqliteOptions::default()).await?;
    store.migrate().await?;
    store.check().await?;
    let options = SqliteConnectOptions::new().filename(database);
    let pool = SqlitePool::connect_with(options.busy_timeout(Duration::from_secs(5))).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, cents INTEGER)")
        .execute(&pool)
        .await?;

    // 2. What relais does here.
    let app = App::new(Arc::new(store)).destination("orders", Arc::new(LogPublisher::stdout()));

    // 3. The console, the API, /healthz, /readyz and /metrics, under a path of this service.
    let token =
        AdminToken { name: "ann".into(), role: Role::Operator, ..AdminToken::shared("s3cret") };
    let ops = relais_admin::router(AdminParts::of(&app, vec![token]).await);

    // 4. The workers.
    let mut running = app.start();
    let router = Router::new()
        .route("/orders", post(place))
        .route("/ready", get(ready))
        .with_state(Service { pool, health: running.health_check() })
        .nest("/ops/relais", ops);

    // 5. Serve until a signal, or until a worker panics: the process must not continue without it.
    let mut stopped = stop.clone();
    let make = router.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, make).with_graceful_shutdown(async move {
        stopped.wait_for(|stop| *stop).await.ok();
    });
    let server = tokio::spawn(server.into_future());
    let failed = tokio::select! {
        _ = stop.wait_for(|stop| *stop) => None,
        text = running.failed() => Some(text),
    };

    // 6. Requests first, then the workers: a request may still send a message.
    tokio::time::timeout(Duration::from_secs(10), server).await.ok();
    if !running.stop_within(Duration::from_secs(15)).await {
        tracing::warn!("workers were aborted; another process takes their lanes over");
    }
    failed.map_or(Ok(()), |text| Err(anyhow::anyhow!(text)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().with_env_filter("info,relais=debug").init();
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let mut terminated = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {} // Kubernetes and systemd
        }
        stop.send_replace(true);
    });
    serve("shop.db".as_ref(), listener, stopped).await
}
