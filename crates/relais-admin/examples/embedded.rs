//! A web service with the workers, the console, the API, health and metrics of relais inside.

use std::{net::SocketAddr, path::Path, sync::Arc};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use relais::{App, Message, Outbox, log::LogPublisher, sqlite};
use relais_admin::{AdminParts, AdminToken};
use sqlx::SqlitePool;
use tokio::net::TcpListener;

#[derive(Message, serde::Serialize, serde::Deserialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPlaced {
    order_id: String,
}

/// The order and its message exist together, or not at all.
async fn place(State(pool): State<SqlitePool>, Json(order): Json<OrderPlaced>) -> StatusCode {
    let insert = sqlx::query("INSERT INTO orders (id) VALUES (?)").bind(&order.order_id);
    let placed = async {
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
        insert.execute(&mut *tx).await?;
        Outbox::to("orders").send(&mut tx, &order).await?;
        anyhow::Ok(tx.commit().await?)
    };
    match placed.await {
        Ok(()) => StatusCode::CREATED,
        Err(error) => {
            tracing::warn!("order not placed: {error:#}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// Serves until `stop` resolves, or a worker panics: the process must not continue without it.
pub async fn serve(
    database: &Path,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let store = sqlite::SqliteStore::open(database, sqlite::SqliteOptions::default()).await?;
    store.migrate().await?;
    store.check().await?;
    let pool = SqlitePool::connect(&format!("sqlite:{}", database.display())).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)").execute(&pool).await?;
    let app = App::new(Arc::new(store)).destination("orders", Arc::new(LogPublisher::stdout()));
    // The console, the API, /healthz, /readyz and /metrics, under a path of this service.
    let ops = relais_admin::router(AdminParts::of(&app, vec![AdminToken::shared("s3cret")]).await);
    let web = Router::new().route("/orders", post(place)).with_state(pool).nest("/ops/relais", ops);
    let service = web.into_make_service_with_connect_info::<SocketAddr>();
    let server = |stop| axum::serve(listener, service).with_graceful_shutdown(stop);
    Ok(app.start().serve(stop, server).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().with_env_filter("info,relais=debug").init();
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    serve("shop.db".as_ref(), listener, relais::terminated()).await
}
