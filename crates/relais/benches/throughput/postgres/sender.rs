//! Connections that send, with tokio-postgres or sqlx.

use anyhow::{Context, Result};
use relais::Outbox;
use sqlx::{Connection, PgConnection};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::connect;
use crate::{
    fixture::{Sender, Write},
    workload::{DESTINATION, OrderChanged, order_id, payload},
};

const BUSINESS: &str = include_str!("../sql/postgres/send_business.sql");

pub(crate) struct PostgresSender {
    driver: Driver,
    outbox: Outbox,
    payload: String,
}

enum Driver {
    Tokio {
        client: Client,
        business: Statement,
        /// `None`: through relais.
        insert: Option<Statement>,
    },
    Sqlx(PgConnection),
}

impl PostgresSender {
    pub(super) async fn new(url: &str, write: Write) -> Result<Self> {
        let insert = match write {
            Write::Minimal => Some(include_str!("../sql/postgres/send_plain.sql")),
            Write::Elsewhere => Some(include_str!("../sql/postgres/send_elsewhere.sql")),
            Write::Outbox | Write::Sqlx => None,
        };
        let driver = if write == Write::Sqlx {
            Driver::Sqlx(PgConnection::connect(url).await?)
        } else {
            let client = connect(url).await?;
            let business = client.prepare(BUSINESS).await?;
            let insert = match insert {
                Some(insert) => Some(client.prepare(insert).await?),
                None => None,
            };
            Driver::Tokio { client, business, insert }
        };
        Ok(Self { driver, outbox: Outbox::to(DESTINATION), payload: payload() })
    }

    /// Sends messages from this key on, in one transaction.
    async fn send_now(&mut self, key: u64, count: u64, alone: Alone) -> Result<Uuid> {
        let mut id = None;
        match &mut self.driver {
            Driver::Tokio { client, business, insert } => {
                let tx = client.transaction().await?;
                if alone == Alone::No {
                    tx.execute(&*business, &[&order_id(key), &self.payload]).await?;
                }
                for key in key..key + count {
                    id = Some(match &*insert {
                        None => self.outbox.send(&mut &tx, &OrderChanged::new(key)).await?,
                        Some(insert) => {
                            let order = order_id(key);
                            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                                [&DESTINATION, &order, &"OrderChanged", &self.payload];
                            let rows = tx.query(insert, &values).await?;
                            rows.first().map_or(Uuid::nil(), |row| row.get(0))
                        }
                    });
                }
                tx.commit().await?;
            }
            Driver::Sqlx(connection) => {
                let mut tx = connection.begin().await?;
                if alone == Alone::No {
                    let business = sqlx::query(BUSINESS).bind(order_id(key)).bind(&self.payload);
                    business.execute(&mut *tx).await?;
                }
                for key in key..key + count {
                    id = Some(self.outbox.send(&mut *tx, &OrderChanged::new(key)).await?);
                }
                tx.commit().await?;
            }
        }
        id.context("nothing was sent")
    }
}

/// The user's own row beside the message, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alone {
    Yes,
    No,
}

impl Sender for PostgresSender {
    const BLOCKS: bool = false;

    fn send(&mut self, key: u64) -> impl Future<Output = Result<Uuid>> + Send {
        self.send_now(key, 1, Alone::No)
    }

    async fn send_many(&mut self, count: u64) -> Result<()> {
        self.send_now(0, count, Alone::Yes).await.map(drop)
    }
}
