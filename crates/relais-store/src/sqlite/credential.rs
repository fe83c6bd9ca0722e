//! Secrets that a target replaces.

use std::time::Duration;

use relais_core::{
    credential::{Credential, Credentials},
    store::StoreFuture,
};

use super::{
    SqliteStore,
    row::{change, first, millis},
};

impl Credentials for SqliteStore {
    fn take_credential(
        &self,
        name: String,
        owner: String,
        lease: Duration,
    ) -> StoreFuture<'_, Option<Credential>> {
        Box::pin(self.writer().run(move |tx| {
            let params = (name, owner, millis(lease));
            first(tx, include_str!("sql/take_credential.sql"), params, |c| Credential {
                version: c.integer(0),
                sealed: c.text(1),
            })
        }))
    }

    fn replace_credential(
        &self,
        name: String,
        owner: String,
        version: i64,
        sealed: String,
    ) -> StoreFuture<'_, bool> {
        Box::pin(self.writer().run(move |tx| {
            let params = (name, owner, version, sealed);
            change(tx, include_str!("sql/replace_credential.sql"), params).map(|rows| rows == 1)
        }))
    }

    fn release_credential(&self, name: String, owner: String) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().run(move |tx| {
            change(tx, include_str!("sql/release_credential.sql"), (name, owner)).map(drop)
        }))
    }
}
