//! The three natural forms of a handler with state, with each driver: an async closure that captures a
//! client, a method of a service, a function with a state argument. All of them use the transaction, await
//! the client and send a message, which carries what caused it.

use std::sync::Arc;

use relais::{App, Handler, Outbox, Received, postgres, sqlite};
use relais_testkit::{Database, scratch};
use sqlx::{PgConnection, PgPool, SqliteConnection, SqlitePool};

use super::{OrderPaid, Payment, Rates, TABLE, accept, payment, postgres as server, until};

/// A service as one would write it.
struct Billing {
    rates: Rates,
    orders: Outbox,
}

impl Billing {
    fn new() -> Self {
        Self { rates: Rates::new(), orders: Outbox::to("orders") }
    }

    async fn on_pg(&self, tx: &mut PgConnection, m: Received<Payment>) -> anyhow::Result<()> {
        let cents = self.rates.convert(m.payload.amount, &m.payload.currency).await?;
        save_pg(tx, &m.payload.order_id, cents).await?;
        self.orders.send(tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
        Ok(())
    }

    async fn on_lite(&self, tx: &mut SqliteConnection, m: Received<Payment>) -> anyhow::Result<()> {
        let cents = self.rates.convert(m.payload.amount, &m.payload.currency).await?;
        save_lite(tx, &m.payload.order_id, cents).await?;
        self.orders.send(tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
        Ok(())
    }

    async fn on_tokio(
        &self,
        mut tx: &tokio_postgres::Transaction<'_>,
        m: Received<Payment>,
    ) -> anyhow::Result<()> {
        let cents = self.rates.convert(m.payload.amount, &m.payload.currency).await?;
        tx.execute("INSERT INTO paid VALUES ($1, $2)", &[&m.payload.order_id, &cents]).await?;
        self.orders.send(&mut tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
        Ok(())
    }

    fn on_rusqlite(
        &self,
        tx: &rusqlite::Transaction<'_>,
        m: Received<Payment>,
    ) -> anyhow::Result<()> {
        let cents = self.rates.look_up(m.payload.amount, &m.payload.currency)?;
        tx.execute("INSERT INTO paid VALUES (?1, ?2)", (&m.payload.order_id, cents))?;
        self.orders.send_blocking(tx, &OrderPaid { order_id: m.payload.order_id, cents })?;
        Ok(())
    }
}

async fn save_pg(tx: &mut PgConnection, order_id: &str, cents: i64) -> sqlx::Result<()> {
    let query = sqlx::query("INSERT INTO paid VALUES ($1, $2)").bind(order_id).bind(cents);
    query.execute(tx).await.map(drop)
}

async fn save_lite(tx: &mut SqliteConnection, order_id: &str, cents: i64) -> sqlx::Result<()> {
    let query = sqlx::query("INSERT INTO paid VALUES (?, ?)").bind(order_id).bind(cents);
    query.execute(tx).await.map(drop)
}

async fn with_state_pg(
    rates: &Rates,
    tx: &mut PgConnection,
    m: Received<Payment>,
) -> anyhow::Result<()> {
    let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
    save_pg(tx, &m.payload.order_id, cents).await?;
    Outbox::to("orders").send(tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
    Ok(())
}

async fn with_state_lite(
    rates: &Rates,
    tx: &mut SqliteConnection,
    m: Received<Payment>,
) -> anyhow::Result<()> {
    let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
    save_lite(tx, &m.payload.order_id, cents).await?;
    Outbox::to("orders").send(tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
    Ok(())
}

async fn with_state_tokio(
    rates: &Rates,
    mut tx: &tokio_postgres::Transaction<'_>,
    m: Received<Payment>,
) -> anyhow::Result<()> {
    let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
    tx.execute("INSERT INTO paid VALUES ($1, $2)", &[&m.payload.order_id, &cents]).await?;
    Outbox::to("orders").send(&mut tx, &OrderPaid { order_id: m.payload.order_id, cents }).await?;
    Ok(())
}

fn with_state_rusqlite(
    rates: &Rates,
    tx: &rusqlite::Transaction<'_>,
    m: Received<Payment>,
) -> anyhow::Result<()> {
    let cents = rates.look_up(m.payload.amount, &m.payload.currency)?;
    tx.execute("INSERT INTO paid VALUES (?1, ?2)", (&m.payload.order_id, cents))?;
    Outbox::to("orders").send_blocking(tx, &OrderPaid { order_id: m.payload.order_id, cents })?;
    Ok(())
}

type Named = (&'static str, Arc<dyn Handler>);

fn sqlx_postgres(pool: &PgPool) -> [Named; 5] {
    let (rates, billing) = (Rates::new(), Arc::new(Billing::new()));
    let closure = {
        let rates = rates.clone();
        async move |tx: &mut PgConnection, m: Received<Payment>| {
            let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
            save_pg(tx, &m.payload.order_id, cents).await?;
            let paid = OrderPaid { order_id: m.payload.order_id, cents };
            Outbox::to("orders").send(tx, &paid).await?;
            anyhow::Ok(())
        }
    };
    let calls = {
        let billing = Arc::clone(&billing);
        async move |tx: &mut PgConnection, m: Received<Payment>| billing.on_pg(tx, m).await
    };
    [
        ("closure", postgres::sqlx_handler(pool.clone(), closure)),
        ("calls", postgres::sqlx_handler(pool.clone(), calls)),
        ("method", postgres::sqlx_handler_with(pool.clone(), billing, Billing::on_pg)),
        ("own", postgres::sqlx_handler_with(pool.clone(), Billing::new(), Billing::on_pg)),
        ("function", postgres::sqlx_handler_with(pool.clone(), rates, with_state_pg)),
    ]
}

fn tokio_postgres(pool: &deadpool_postgres::Pool) -> [Named; 3] {
    let (rates, billing) = (Rates::new(), Arc::new(Billing::new()));
    let closure = {
        let rates = rates.clone();
        async move |mut tx: &tokio_postgres::Transaction<'_>, m: Received<Payment>| {
            let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
            tx.execute("INSERT INTO paid VALUES ($1, $2)", &[&m.payload.order_id, &cents]).await?;
            let paid = OrderPaid { order_id: m.payload.order_id, cents };
            Outbox::to("orders").send(&mut tx, &paid).await?;
            anyhow::Ok(())
        }
    };
    [
        ("tokio-closure", postgres::handler(pool.clone(), closure)),
        ("tokio-method", postgres::handler_with(pool.clone(), billing, Billing::on_tokio)),
        ("tokio-function", postgres::handler_with(pool.clone(), rates, with_state_tokio)),
    ]
}

fn sqlx_sqlite(pool: &SqlitePool) -> [Named; 3] {
    let (rates, billing) = (Rates::new(), Arc::new(Billing::new()));
    let closure = {
        let rates = rates.clone();
        async move |tx: &mut SqliteConnection, m: Received<Payment>| {
            let cents = rates.convert(m.payload.amount, &m.payload.currency).await?;
            save_lite(tx, &m.payload.order_id, cents).await?;
            let paid = OrderPaid { order_id: m.payload.order_id, cents };
            Outbox::to("orders").send(tx, &paid).await?;
            anyhow::Ok(())
        }
    };
    [
        ("closure", sqlite::sqlx_handler(pool.clone(), closure)),
        ("method", sqlite::sqlx_handler_with(pool.clone(), billing, Billing::on_lite)),
        ("function", sqlite::sqlx_handler_with(pool.clone(), rates, with_state_lite)),
    ]
}

fn rusqlite(store: &sqlite::SqliteStore) -> [Named; 3] {
    let (rates, billing) = (Rates::new(), Arc::new(Billing::new()));
    let captured = rates.clone();
    let closure = move |tx: &rusqlite::Transaction<'_>, m: Received<Payment>| {
        let cents = captured.look_up(m.payload.amount, &m.payload.currency)?;
        tx.execute("INSERT INTO paid VALUES (?1, ?2)", (&m.payload.order_id, cents))?;
        let paid = OrderPaid { order_id: m.payload.order_id, cents };
        Outbox::to("orders").send_blocking(tx, &paid)?;
        anyhow::Ok(())
    };
    [
        ("rusqlite-closure", sqlite::handler(store, closure)),
        ("rusqlite-method", sqlite::handler_with(store, billing, Billing::on_rusqlite)),
        ("rusqlite-function", sqlite::handler_with(store, rates, with_state_rusqlite)),
    ]
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Each handler changes its row and sends its message, which carries correlation, cause and trace.
async fn check(database: &dyn Database, handlers: Vec<Named>) {
    database.execute(TABLE).await.unwrap();
    let store = database.store();
    let mut app = App::new(Arc::clone(&store));
    let (mut paid, mut sent, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    for (name, handler) in handlers {
        app = app.handle(name, handler);
        let message = payment(name, name, name).header("correlation-id", "c-1");
        messages.push(message.header("traceparent", TRACE));
        paid.push(format!("{name} 321"));
        sent.push(format!("{name} c-1 {name}"));
    }
    paid.sort();
    sent.sort();
    accept(&*store, messages).await;
    let running = app.start();
    let paid: Vec<&str> = paid.iter().map(String::as_str).collect();
    until(database, "SELECT order_id, cents FROM paid ORDER BY order_id", &paid).await;
    until(database, "SELECT count(*) FROM relais_inbox WHERE status <> 'PROCESSED'", &["0"]).await;
    let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    let sql = "SELECT aggregate_id, correlation_id, causation_id FROM relais_outbox ORDER BY 1";
    until(database, sql, &sent).await;
    let sql = format!("SELECT count(*) FROM relais_outbox WHERE headers LIKE '%{TRACE}%'");
    until(database, &sql, &[&sent.len().to_string()]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_have_state_on_postgresql() {
    let Some(scratch) = server().await else { return };
    let pool = PgPool::connect(&scratch.url()).await.unwrap();
    let mut handlers = Vec::from(sqlx_postgres(&pool));
    handlers.extend(tokio_postgres(&scratch.pool()));
    check(&scratch, handlers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_have_state_on_sqlite() {
    let scratch = scratch::sqlite().await;
    let pool = super::trouble::pool(&scratch).await;
    let mut handlers = Vec::from(sqlx_sqlite(&pool));
    handlers.extend(rusqlite(&scratch));
    check(&scratch, handlers).await;
}

/// Sends one message without a cause and one with it, outside the handler of the cause.
macro_rules! send_with_and_without_cause {
    ($pool:expr, $cause:expr) => {{
        let mut tx = $pool.begin().await.unwrap();
        let paid = |order_id: &str| OrderPaid { order_id: order_id.to_owned(), cents: 321 };
        let orders = Outbox::to("orders");
        orders.send(&mut *tx, &paid("plain")).await.unwrap();
        orders.caused_by($cause).send(&mut *tx, &paid("caused")).await.unwrap();
        tx.commit().await.unwrap();
    }};
}

async fn check_causes(database: &dyn Database) {
    let sql = "SELECT aggregate_id, correlation_id, causation_id FROM relais_outbox \
               WHERE causation_id IS NOT NULL";
    until(database, sql, &["caused c-1 m-1"]).await;
    let sql = format!("SELECT aggregate_id FROM relais_outbox WHERE headers LIKE '%{TRACE}%'");
    until(database, &sql, &["caused"]).await;
    until(database, "SELECT count(*) FROM relais_outbox", &["2"]).await;
}

fn with_a_cause() -> relais::NewInbox {
    let message = payment("m-1", "Paid", "k").header("correlation-id", "c-1");
    message.header("traceparent", TRACE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_sent_outside_its_handler_names_its_cause_on_postgresql() {
    let Some(scratch) = server().await else { return };
    let pool = PgPool::connect(&scratch.url()).await.unwrap();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let hand_over = async move |_: &mut PgConnection, m: Received<Payment>| {
        assert!(sender.send(m).is_ok());
        anyhow::Ok(())
    };
    let handler = postgres::sqlx_handler(pool.clone(), hand_over);
    let running = App::new(scratch.store()).handle("Paid", handler).start();
    accept(&*scratch.store(), vec![with_a_cause()]).await;
    let cause = received.recv().await.unwrap();
    send_with_and_without_cause!(pool, &cause);
    check_causes(&scratch).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_sent_outside_its_handler_names_its_cause_on_sqlite() {
    let scratch = scratch::sqlite().await;
    let pool = super::trouble::pool(&scratch).await;
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let hand_over = async move |_: &mut SqliteConnection, m: Received<Payment>| {
        assert!(sender.send(m).is_ok());
        anyhow::Ok(())
    };
    let handler = sqlite::sqlx_handler(pool.clone(), hand_over);
    let running = App::new(scratch.store()).handle("Paid", handler).start();
    accept(&*scratch.store(), vec![with_a_cause()]).await;
    let cause = received.recv().await.unwrap();
    send_with_and_without_cause!(pool, &cause);
    check_causes(&scratch).await;
    running.stop().await;
}
