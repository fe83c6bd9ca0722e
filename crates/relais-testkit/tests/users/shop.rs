//! A user's service: accounts, payments and their messages.

use relais::{Message, core::inbox::NewInbox};
use relais_testkit::{arrived, database::PostgresScratch, scratch};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PaymentReceived {
    pub(crate) account: String,
    pub(crate) cents: i64,
}

#[derive(Message, Serialize)]
#[message(aggregate = "Account", key = "account", id = "event_id")]
pub(crate) struct Paid {
    pub(crate) event_id: uuid::Uuid,
    pub(crate) account: String,
    pub(crate) cents: i64,
}

impl Paid {
    pub(crate) fn of(payment: &PaymentReceived) -> Self {
        let event_id = uuid::Uuid::now_v7();
        Self { event_id, account: payment.account.clone(), cents: payment.cents }
    }
}

/// Works on each database.
pub(crate) const TABLES: &str = "
    CREATE TABLE accounts (id TEXT PRIMARY KEY, cents BIGINT NOT NULL);
    CREATE TABLE payments (message_id TEXT, note TEXT);
    INSERT INTO accounts VALUES ('a-1', 0), ('a-2', 0)";
pub(crate) const ADD: &str = "UPDATE accounts SET cents = cents + $1 WHERE id = $2";
pub(crate) const NOTE: &str = "INSERT INTO payments (message_id, note) VALUES ($1, $2)";

pub(crate) fn payment(number: usize, account: &str) -> NewInbox {
    let message = arrived(
        &format!("m-{number}"),
        "PaymentReceived",
        json!({"account": account, "cents": 100 * number}),
    );
    NewInbox { msg_key: account.to_owned(), ..message }
}

/// A schema of its own; `None` without a server.
pub(crate) async fn postgres() -> Option<PostgresScratch> {
    let Some(url) = postgres_url() else {
        eprintln!("NOT TESTED: the testkit on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return None;
    };
    Some(scratch::postgres(&url).await)
}

pub(crate) fn postgres_url() -> Option<String> {
    let url = std::env::var("RELAIS_TEST_POSTGRES").ok();
    assert!(url.is_some() || std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_POSTGRES");
    url
}
