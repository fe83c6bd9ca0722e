//! What operators change while relais runs, and the figures that processes report.

use std::time::Duration;

use relais_core::{
    control::{
        CONTROLS_MAX, Control, ControlChange, ControlKind, ControlOrder, Controls, LimitChange,
        PROCESS_TYPE_PAUSED, Pause,
    },
    report::{NewReport, REPORT_KEPT, REPORT_VALID, REPORTS_MAX, Report, Reports},
    store::{StoreError, StoreFuture},
};
use rusqlite::Transaction;

use super::{
    SqliteStore,
    row::{Cells, all, change, limit, millis},
};

/// Rows whose wait ends with a resume; more of them continue when their pause is over.
const WOKEN_MAX: usize = 10_000;

impl Controls for SqliteStore {
    fn controls(&self) -> StoreFuture<'_, Vec<Control>> {
        Box::pin(
            self.inner.watcher.read(|db| {
                all(db, include_str!("sql/controls.sql"), [limit(CONTROLS_MAX)], control)
            }),
        )
    }

    fn control(&self, order: ControlOrder) -> StoreFuture<'_, bool> {
        Box::pin(self.writer().run(move |tx| carry_out(tx, &order)))
    }

    fn wake_paused(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().run(wake_paused))
    }
}

impl Reports for SqliteStore {
    fn report(&self, report: NewReport) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().run(move |tx| {
            let NewReport { worker, host, pid, version, figures } = &report;
            let params = (worker, host, pid, version, figures);
            change(tx, include_str!("sql/report.sql"), params)?;
            change(tx, include_str!("sql/forget_reports.sql"), [millis(REPORT_KEPT)]).map(drop)
        }))
    }

    fn reports(&self) -> StoreFuture<'_, Vec<Report>> {
        Box::pin(self.readers().read(|db| {
            let params = (millis(REPORT_VALID), limit(REPORTS_MAX));
            all(db, include_str!("sql/reports.sql"), params, |c| Report {
                worker: c.string(0),
                host: c.string(1),
                pid: u32::try_from(c.integer(2)).unwrap_or_default(),
                version: c.string(3),
                started_at: c.some_time(4),
                reported_at: c.some_time(5),
                alive: c.flag(6),
                figures: c.string(7),
            })
        }))
    }

    fn retract_report(&self, worker: String) -> StoreFuture<'_, ()> {
        Box::pin(
            self.writer().run(move |tx| {
                change(tx, include_str!("sql/retract_report.sql"), [&worker]).map(drop)
            }),
        )
    }
}

fn control(c: &Cells<'_, '_>) -> Control {
    let number = |column| u32::try_from(c.integer(column)).ok().filter(|number| *number > 0);
    let period = Duration::from_millis(c.count(6));
    Control {
        kind: c.control_kind(0),
        name: c.string(1),
        pause: c.time(2).map(|at| Pause { at, by: c.string(3), reason: c.string(4) }),
        limits: LimitChange {
            rate: number(5).map(|calls| (calls, period)).filter(|_| !period.is_zero()),
            concurrency: number(7),
        },
        limits_changed: c.integer(8),
        breaker_resets: c.integer(9),
    }
}

fn wake_paused(tx: &Transaction<'_>) -> Result<u64, StoreError> {
    change(tx, include_str!("sql/wake_paused.sql"), (PROCESS_TYPE_PAUSED, limit(WOKEN_MAX)))
}

fn carry_out(tx: &Transaction<'_>, order: &ControlOrder) -> Result<bool, StoreError> {
    let ControlOrder { kind, name, change: wanted, actor, reason } = order;
    let id = (kind.as_str(), name);
    let changed = match wanted {
        ControlChange::Pause => {
            change(tx, include_str!("sql/pause.sql"), (id.0, id.1, actor, reason))?
        }
        ControlChange::Resume => change(tx, include_str!("sql/resume.sql"), id)?,
        ControlChange::Limit(LimitChange { rate, concurrency }) => {
            let (calls, period) = (rate.map(|rate| rate.0), rate.map(|rate| millis(rate.1)));
            let params = (id.0, id.1, calls, period, concurrency);
            change(tx, include_str!("sql/set_limits.sql"), params)?
        }
        ControlChange::ResetBreaker => change(tx, include_str!("sql/reset_breaker.sql"), id)?,
    };
    if changed == 0 {
        return Ok(false);
    }
    if (*kind, *wanted) == (ControlKind::ProcessType, ControlChange::Resume) {
        wake_paused(tx)?;
    }
    change(tx, include_str!("sql/audit.sql"), (actor, order.audit_action(), name, reason))?;
    Ok(true)
}
