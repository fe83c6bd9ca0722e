//! Secrets that a target replaces.

use std::time::Duration;

use relais_core::{
    async_trait,
    credential::{Credential, Credentials},
    store::StoreResult,
};

use super::{PostgresStore, row};

#[async_trait]
impl Credentials for PostgresStore {
    async fn take_credential(
        &self,
        name: String,
        owner: String,
        lease: Duration,
    ) -> StoreResult<Option<Credential>> {
        self.engine()
            .run((name, owner, row::millis(lease)), |client, _, (name, owner, lease)| {
                Box::pin(async move {
                    let statement = client.prepare_cached(sql!("take_credential")).await?;
                    let taken = client.query_opt(&statement, &[name, owner, lease]).await?;
                    let taken =
                        taken.map(|row| Credential { version: row.get(0), sealed: row.get(1) });
                    Ok(taken)
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
        self.engine()
            .run((name, owner, version, sealed), |client, _, (name, owner, version, sealed)| {
                Box::pin(async move {
                    let statement = client.prepare_cached(sql!("replace_credential")).await?;
                    Ok(client.execute(&statement, &[name, owner, version, sealed]).await? == 1)
                })
            })
            .await
    }

    async fn release_credential(&self, name: String, owner: String) -> StoreResult<()> {
        self.engine()
            .run((name, owner), |client, _, (name, owner)| {
                Box::pin(async move {
                    let statement = client.prepare_cached(sql!("release_credential")).await?;
                    client.execute(&statement, &[name, owner]).await?;
                    Ok(())
                })
            })
            .await
    }
}
