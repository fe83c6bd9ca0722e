//! Salesforce: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::sync::Arc;

use relais::{
    BulkSettings, Hydrator, Publisher,
    salesforce::{
        Api, Auth, ProbeResult, SalesforceBulk, SalesforceCollections, SalesforceGraph,
        SalesforceSession, SalesforceSettings, TokenKey, TokenVault,
    },
};
use relais_core::{async_trait, hydrate::HydratedRecords, store::StoreError};

use super::{Database, DeliveryPath, DestinationParts, WireError, guards, hydrate_of};
use crate::settings::{DestinationConfig, SalesforceTarget, TargetConfig};

/// One token and one budget for all destinations that log in alike.
#[derive(Default)]
pub(super) struct SalesforceSessions(Vec<(String, Auth, SalesforceSession)>);

impl SalesforceSessions {
    /// Without a database a refresh token cannot be replaced: then nothing is sent either.
    fn of(
        &mut self,
        target: &SalesforceTarget,
        database: Option<&Database>,
    ) -> Result<SalesforceSession, String> {
        let SalesforceTarget { keys, auth, .. } = target;
        let vault = match &keys.refresh_token_key {
            Some(key) => {
                let key = TokenKey::new(key)?;
                database.map(|database| TokenVault::new(database.credentials(), key))
            }
            None => None,
        };
        let known = self.0.iter().find(|(url, who, _)| *url == keys.login_url && who.is_same(auth));
        if let Some((.., session)) = known {
            return Ok(session.clone());
        }
        let session = vault.map(SalesforceSession::with_vault).unwrap_or_default();
        self.0.push((keys.login_url.clone(), auth.clone(), session.clone()));
        Ok(session)
    }
}

pub(super) fn make(
    destination: &DestinationConfig,
    target: &SalesforceTarget,
    hydrator: Option<Arc<dyn Hydrator>>,
    database: Option<&Database>,
    sessions: &mut SalesforceSessions,
) -> Result<DestinationParts, WireError> {
    let session = sessions.of(target, database).map_err(|error| destination.error(error))?;
    let settings = connector(target, session);
    let budget = settings.session.budget().clone();
    let made = deliverer(destination, target, settings, hydrator);
    Ok(DestinationParts {
        delivers: made.map_err(|error| destination.error(error))?,
        budget: Some(budget),
    })
}

fn deliverer(
    destination: &DestinationConfig,
    target: &SalesforceTarget,
    settings: SalesforceSettings,
    hydrator: Option<Arc<dyn Hydrator>>,
) -> Result<DeliveryPath, String> {
    let small: Option<Arc<dyn Publisher>> = match target.api {
        Api::Graph => {
            return Ok(DeliveryPath::Single(Arc::new(SalesforceGraph::new(settings, hydrator)?)));
        }
        Api::Collections | Api::Auto => {
            Some(Arc::new(SalesforceCollections::new(settings.clone(), hydrator.clone())?))
        }
        Api::BulkV2 => None,
    };
    match (target.api, small) {
        (Api::Collections, Some(small)) => Ok(DeliveryPath::Single(small)),
        (_, small) => {
            let bulk = SalesforceBulk::new(settings, hydrator)?;
            let settings = Box::new(bulk_settings(destination, target, small));
            Ok(DeliveryPath::Bulk(Arc::new(bulk), settings))
        }
    }
}

fn connector(target: &SalesforceTarget, session: SalesforceSession) -> SalesforceSettings {
    SalesforceSettings {
        rows_max: target.bulk.rows as usize,
        orphan_age: target.bulk.orphan_age,
        ..target.keys.settings(target.auth.clone(), &target.object, session)
    }
}

/// Logs in and reads the object, its external id field and its columns.
pub(super) async fn probe(
    target: &SalesforceTarget,
    database: Option<&Database>,
    sessions: &mut SalesforceSessions,
) -> Vec<ProbeResult> {
    match sessions.of(target, database) {
        Ok(session) => relais::salesforce::probe(&connector(target, session)).await,
        Err(why) => vec![("refresh_token_key", Err(why.into()))],
    }
}

/// Returns the names in the keys that the result of `hydrate` does not have.
pub(super) fn missing_columns(destination: &DestinationConfig, found: &[String]) -> Option<String> {
    let TargetConfig::Salesforce(target) = &destination.target else { return None };
    let (_, id) = hydrate_of(destination)?;
    let of_payload = |field: &str| field.starts_with('/') || field.starts_with("payload:");
    let fields = target.keys.columns.iter().map(|(_, field)| field.as_str());
    let fields = fields.filter(|field| !of_payload(field));
    let wanted = fields.chain(target.keys.version.as_deref()).chain([id]);
    let is_there = |name: &str| found.iter().any(|column| column.eq_ignore_ascii_case(name));
    let mut missing: Vec<String> =
        wanted.filter(|name| !is_there(name)).map(|name| format!("`{name}`")).collect();
    missing.sort();
    missing.dedup();
    (!missing.is_empty()).then(|| {
        let (missing, found) = (missing.join(", "), found.join(", "));
        format!("`hydrate` gives no column {missing}; it gives {found}")
    })
}

fn bulk_settings(
    destination: &DestinationConfig,
    target: &SalesforceTarget,
    small: Option<Arc<dyn Publisher>>,
) -> BulkSettings {
    BulkSettings::default()
        .destination(guards(destination))
        .threshold(target.bulk.from as usize)
        .small(small)
        .linger(target.bulk.linger)
        .poll_first(target.bulk.poll_first)
        .poll_max(target.bulk.poll_max)
        .transfer_timeout(target.bulk.transfer_timeout)
        .sweep_every(target.bulk.sweep_every)
}

/// Replaces the database where none is connected.
pub(super) struct NoDatabase;

#[async_trait]
impl Hydrator for NoDatabase {
    async fn hydrate(&self, _ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        Err(StoreError::unavailable("not connected"))
    }
}
