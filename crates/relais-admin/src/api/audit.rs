//! The audit log.

use axum::extract::State;
use relais_core::inspect::{AuditEntry, AuditFilter, InspectExt};
use serde::Deserialize;

use super::{Answer, run};
use crate::{
    Admin,
    input::{FilterText, Limit, ListPage, QueryParams},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    actor: Option<FilterText>,
    target: Option<FilterText>,
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<AuditQuery>,
) -> Answer<ListPage<AuditEntry>> {
    let AuditQuery { actor, target, before, limit } = wanted;
    let (actor, target) = (actor.map(String::from), target.map(String::from));
    let limit = limit.get()?;
    run(async move {
        let entries = admin.store.list_audit(AuditFilter { actor, target, before, limit }).await?;
        Ok(ListPage::of(entries, limit, |entry| entry.id.to_string()))
    })
    .await
}
