//! Secrets that a target replaces.

use std::time::Duration;

use relais_core::{
    async_trait,
    credential::{Credential, Credentials},
    store::StoreResult,
};

use super::{
    SqliteStore,
    row::{change, first, millis},
};

#[async_trait]
impl Credentials for SqliteStore {
    async fn take_credential(
        &self,
        name: String,
        owner: String,
        lease: Duration,
    ) -> StoreResult<Option<Credential>> {
        self.writer()
            .run(move |tx| {
                let params = (name, owner, millis(lease));
                first(tx, include_str!("sql/take_credential.sql"), params, |c| Credential {
                    version: c.integer(0),
                    sealed: c.text(1),
                })
            })
            .await
    }

    async fn replace_credential(
        &self,
        name: String,
        owner: String,
        version: i64,
        sealed: String,
    ) -> StoreResult<bool> {
        self.writer()
            .run(move |tx| {
                let params = (name, owner, version, sealed);
                change(tx, include_str!("sql/replace_credential.sql"), params).map(|rows| rows == 1)
            })
            .await
    }

    async fn release_credential(&self, name: String, owner: String) -> StoreResult<()> {
        self.writer()
            .run(move |tx| {
                change(tx, include_str!("sql/release_credential.sql"), (name, owner)).map(drop)
            })
            .await
    }
}
