//! Reports the figures of this process, so that any process can show the sum of all.
//!
//! Changed figures are written once a second, others seldom: an idle process costs next to nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    report::{NewReport, REPORT_EVERY, ReportUpdate},
    store::Store,
};
use tokio_util::sync::CancellationToken;

use crate::observe::{Figures, Observer};

/// The interval at which the figures are compared with the last report.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// Time that a stopping process tries to retract its report.
const RETRACT_MAX: Duration = Duration::from_secs(2);

/// The last report.
struct LastReport {
    figures: Figures,
    at: Instant,
    /// The figures differed from those before.
    changed: bool,
}

impl LastReport {
    fn is_old(&self) -> bool {
        self.changed || self.at.elapsed() + COMPARE_EVERY >= REPORT_EVERY
    }
}

/// Reports until `stop`, then retracts the report.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    observer: Arc<Observer>,
    worker: String,
    stop: CancellationToken,
) {
    let host = host();
    let mut last: Option<LastReport> = None;
    let mut troubled = false;
    loop {
        let figures = observer.figures();
        let changed = last.as_ref().is_none_or(|last| last.figures != figures);
        // One more report after the last change: other processes compute rates from two reports.
        if changed || last.as_ref().is_none_or(LastReport::is_old) {
            let report = NewReport {
                worker: worker.clone(),
                host: host.clone(),
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                figures: serde_json::to_string(&figures).expect("figures are plain JSON"),
            };
            match store.report(ReportUpdate::Write(report)).await {
                Ok(()) => {
                    last = Some(LastReport { figures, at: Instant::now(), changed });
                    troubled = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut troubled, true) {
                        tracing::warn!(%error, "figures were not reported; other processes show older ones");
                    }
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(COMPARE_EVERY) => {}
        }
    }
    let retracted =
        tokio::time::timeout(RETRACT_MAX, store.report(ReportUpdate::Remove { worker })).await;
    if !matches!(retracted, Ok(Ok(()))) {
        tracing::debug!("report was not retracted; it will expire");
    }
}

/// Returns the name of this machine, or `unknown`.
fn host() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").ok());
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| "unknown".to_owned())
}
