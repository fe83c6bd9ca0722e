//! Calls of a slow service hold no connection of relais to its database.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use tokio::sync::Semaphore;

use crate::{
    mails, place, settings,
    support::{Site, postgres::PostgresSchema},
    until,
};

/// More than the connections of relais.
const HELD: usize = 20;
/// The least that PostgreSQL may be given.
const CONNECTIONS: usize = 4;

/// A service that answers no call until it is released.
#[derive(Clone)]
struct SlowService {
    calls: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl SlowService {
    fn new() -> Self {
        Self { calls: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    fn start(&self) -> SocketAddr {
        crate::serve(Router::new().route("/relais", post(wait)).with_state(self.clone()))
    }
}

async fn wait(State(service): State<SlowService>) -> StatusCode {
    service.calls.fetch_add(1, Ordering::SeqCst);
    // Closed means released.
    let _ = service.gate.acquire().await;
    StatusCode::NO_CONTENT
}

/// Holds more calls than there are connections, and lets the rest of relais work meanwhile.
fn hold((store, more): (&str, &str), texts: &dyn Fn(&Site, &str) -> Vec<String>) {
    let service = SlowService::new();
    let limits = format!("[handler.limits]\nconcurrency = {HELD}\ntimeout = \"1h\"\n");
    let text = settings(store, service.start(), &limits);
    let site = Site::with(&text.replacen("[[source]]", &format!("{more}[[source]]"), 1));
    let running = site.run();
    let last = HELD * 2;
    (0..HELD).for_each(|n| place(&running, &format!("m-{n}"), &format!("o-{n}"), 1));
    until("all calls are held", || service.calls.load(Ordering::SeqCst) == HELD);
    // Messages are stored and copied for the handler, and others are delivered.
    (HELD..last).for_each(|n| place(&running, &format!("m-{n}"), &format!("o-{n}"), 1));
    let own = "FROM relais_inbox WHERE source_system = '@billing::shop'";
    let copied = format!("SELECT message_id {own}");
    until("all are copied", || texts(&site, &copied).len() == last);
    texts(
        &site,
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
         VALUES ('Order', 'o-1', 'Mailed', 'mail', '{}')",
    );
    until("another message is delivered", || mails(&site).len() == 1);
    assert_eq!(service.calls.load(Ordering::SeqCst), HELD, "the calls are still held");
    assert!(texts(&site, &format!("SELECT message_id {own} AND status = 'PROCESSED'")).is_empty());
    service.gate.close();
    let handled = format!("SELECT message_id {own} AND status = 'PROCESSED'");
    until("all are handled", || texts(&site, &handled).len() == last);
    assert_eq!(service.calls.load(Ordering::SeqCst), last, "each was called once");
    running.stop();
}

#[test]
fn more_held_calls_than_connections_delay_nothing_else_on_postgres() {
    const { assert!(HELD > CONNECTIONS) };
    let Some(schema) = PostgresSchema::new() else { return };
    let connections = format!("connections = {CONNECTIONS}\n");
    hold((&schema.url, &connections), &|_, sql| schema.texts(sql));
}

#[test]
fn held_calls_delay_nothing_else_on_sqlite() {
    hold(("sqlite:relais.db", ""), &|site, sql| {
        let base = rusqlite::Connection::open(site.path("relais.db")).unwrap();
        base.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        let mut statement = base.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    });
}
