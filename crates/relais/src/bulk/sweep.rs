//! Looks for jobs at the target that a lost answer left there.

use std::{sync::Arc, time::Duration};

use relais_core::{query::PAGE_MAX, store::Store};

use super::call::Caller;

/// Aborts what is ours there and not in the store; the target judges what is old enough.
pub(crate) async fn sweep(
    store: Arc<dyn Store>,
    caller: Caller,
    destination: String,
    limit: Duration,
) {
    // Open jobs come first in the list, and only those matter.
    let jobs = match store.list_bulk(Some(destination.clone()), PAGE_MAX).await {
        Ok(jobs) => jobs,
        Err(error) => {
            tracing::warn!(destination, %error, "no sweep");
            return;
        }
    };
    let known: Vec<String> = jobs.into_iter().filter_map(|job| job.remote_id).collect();
    let swept = caller.call(limit, |target| target.sweep(&known)).await;
    if let Ok(Ok(aborted @ 1..)) = swept {
        tracing::info!(destination, aborted, "jobs that a lost answer left are aborted");
    }
}
