//! Salesforce: the connector's own settings from ours. Nothing connects here yet.

use std::{collections::HashMap, sync::Arc};

use relais::{
    BulkSettings, Hydrator, Publisher,
    salesforce::{
        Api, Auth, ProbeResult, SalesforceBulk, SalesforceCollections, SalesforceGraph,
        SalesforceSession, SalesforceSettings, TokenKey, TokenVault,
    },
};
use relais_core::{async_trait, hydrate::Hydrated, store::StoreError};
use secrecy::ExposeSecret;

use super::{Database, Delivers, Made, WireError, guards};
use crate::settings::{Destination, SalesforceAuth, SalesforceTarget, Target};

/// One token and one budget for all destinations that sign in alike.
#[derive(Default)]
pub(super) struct Sessions(HashMap<String, SalesforceSession>);

impl Sessions {
    /// Without a database a refresh token cannot be replaced: then nothing is sent either.
    fn of(
        &mut self,
        target: &SalesforceTarget,
        database: Option<&Database>,
    ) -> Result<SalesforceSession, String> {
        let vault = match &target.auth {
            SalesforceAuth::RefreshToken { key, .. } => {
                let key = TokenKey::new(key)?;
                database.map(|database| TokenVault::new(database.credentials(), key))
            }
            SalesforceAuth::ClientCredentials { .. } | SalesforceAuth::JwtBearer { .. } => None,
        };
        let session = self.0.entry(who(target));
        Ok(session
            .or_insert_with(|| vault.map(SalesforceSession::with_vault).unwrap_or_default())
            .clone())
    }
}

pub(super) fn make(
    destination: &Destination,
    target: &SalesforceTarget,
    hydrator: Option<Arc<dyn Hydrator>>,
    database: Option<&Database>,
    sessions: &mut Sessions,
) -> Result<Made, WireError> {
    let session = sessions.of(target, database).map_err(|error| destination.error(error))?;
    let settings = connector(target, session);
    let budget = settings.session.budget().clone();
    let made = deliverer(destination, target, settings, hydrator);
    Ok(Made { delivers: made.map_err(|error| destination.error(error))?, budget: Some(budget) })
}

fn deliverer(
    destination: &Destination,
    target: &SalesforceTarget,
    settings: SalesforceSettings,
    hydrator: Option<Arc<dyn Hydrator>>,
) -> Result<Delivers, String> {
    let small: Option<Arc<dyn Publisher>> = match target.api {
        Api::Graph => {
            return Ok(Delivers::Single(Arc::new(SalesforceGraph::new(settings, hydrator)?)));
        }
        Api::Collections | Api::Auto => {
            Some(Arc::new(SalesforceCollections::new(settings.clone(), hydrator.clone())?))
        }
        Api::BulkV2 => None,
    };
    match (target.api, small) {
        (Api::Collections, Some(small)) => Ok(Delivers::Single(small)),
        (_, small) => {
            let bulk = SalesforceBulk::new(settings, hydrator)?;
            let settings = Box::new(bulk_settings(destination, target, small));
            Ok(Delivers::Bulk(Arc::new(bulk), settings))
        }
    }
}

fn connector(target: &SalesforceTarget, session: SalesforceSession) -> SalesforceSettings {
    let auth = match &target.auth {
        SalesforceAuth::ClientCredentials { client_id, client_secret } => Auth::ClientCredentials {
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
        },
        SalesforceAuth::JwtBearer { client_id, username, private_key, audience } => {
            Auth::JwtBearer {
                client_id: client_id.clone(),
                username: username.clone(),
                private_key: private_key.clone(),
                audience: audience.clone(),
            }
        }
        SalesforceAuth::RefreshToken { client_id, client_secret, refresh_token, .. } => {
            Auth::RefreshToken {
                client_id: client_id.clone(),
                client_secret: client_secret.clone(),
                refresh_token: refresh_token.clone(),
            }
        }
    };
    let hydrate = target.hydrate.as_ref();
    SalesforceSettings {
        api_version: target.api_version.clone(),
        columns: target.columns.clone(),
        version: hydrate.and_then(|hydrate| hydrate.version.clone()),
        on_missing: hydrate.map(|hydrate| hydrate.on_missing).unwrap_or_default(),
        superseded: target.superseded.clone(),
        rows_max: target.bulk.rows,
        orphan_age: target.bulk.orphan_age,
        token_life: target.token_life,
        session,
        ..SalesforceSettings::new(&target.login_url, auth, &target.object, &target.external_id)
    }
}

/// Logs in and looks at the object, its external id field and its columns.
pub(super) async fn probe(
    target: &SalesforceTarget,
    database: Option<&Database>,
    sessions: &mut Sessions,
) -> Vec<ProbeResult> {
    match sessions.of(target, database) {
        Ok(session) => relais::salesforce::probe(&connector(target, session)).await,
        Err(why) => vec![("refresh_token_key", Err(why))],
    }
}

/// Names that the settings take from the result of `hydrate` and that it does not have.
pub(super) fn missing_columns(destination: &Destination, found: &[String]) -> Option<String> {
    let Target::Salesforce(target) = &destination.target else { return None };
    let hydrate = target.hydrate.as_ref()?;
    let of_payload = |field: &str| field.starts_with('/') || field.starts_with("payload:");
    let fields = target.columns.iter().map(|(_, field)| field).filter(|field| !of_payload(field));
    let wanted = fields.chain(hydrate.version.as_ref()).chain([&hydrate.id]);
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
    destination: &Destination,
    target: &SalesforceTarget,
    small: Option<Arc<dyn Publisher>>,
) -> BulkSettings {
    BulkSettings::default()
        .destination(guards(destination))
        .threshold(target.bulk.from)
        .small(small)
        .linger(target.bulk.linger)
        .poll_first(target.bulk.poll_first)
        .poll_max(target.bulk.poll_max)
        .transfer_timeout(target.bulk.transfer_timeout)
        .sweep_every(target.bulk.sweep_every)
}

/// Everything that decides which token one gets.
fn who(target: &SalesforceTarget) -> String {
    let parts = match &target.auth {
        SalesforceAuth::ClientCredentials { client_id, client_secret } => {
            vec![client_id.as_str(), client_secret.expose_secret()]
        }
        SalesforceAuth::JwtBearer { client_id, username, private_key, audience } => {
            let audience = audience.as_deref().unwrap_or_default();
            vec![client_id.as_str(), username, private_key.expose_secret(), audience]
        }
        SalesforceAuth::RefreshToken { client_id, refresh_token, .. } => {
            vec![client_id.as_str(), refresh_token.expose_secret(), ""]
        }
    };
    format!("{}\n{}", target.login_url, parts.join("\n"))
}

/// Stands for the database where none is connected.
pub(super) struct NoDatabase;

#[async_trait]
impl Hydrator for NoDatabase {
    async fn hydrate(&self, _ids: Vec<String>) -> Result<Hydrated, StoreError> {
        Err(StoreError::unavailable("not connected"))
    }
}
