//! Who did what, and why.

use axum::extract::State;
use relais_core::desk::{AuditEntry, AuditFilter};
use serde::Deserialize;

use super::{Answer, run};
use crate::{
    Admin,
    input::{Asked, Limit, Page, Text},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    actor: Option<Text>,
    target: Option<Text>,
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

pub(crate) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<AuditEntry>> {
    let Wanted { actor, target, before, limit } = wanted;
    let (actor, target) = (actor.map(String::from), target.map(String::from));
    let limit = limit.get()?;
    run(async move {
        let entries = admin.store.list_audit(AuditFilter { actor, target, before, limit }).await?;
        Ok(Page::of(entries, limit, |entry| entry.id.to_string()))
    })
    .await
}
