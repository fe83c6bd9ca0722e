//! Controls that operators set while relais runs, and the figures that processes report.

use std::time::Duration;

use relais_core::{
    control::{
        CONTROLS_MAX, Control, ControlChange, ControlKind, ControlOrder, LimitChange,
        PROCESS_TYPE_PAUSED, Pause,
    },
    report::{NewReport, REPORT_KEPT, ReportUpdate},
    store::{SettleOutcome, StoreError},
};
use rusqlite::{Connection, Transaction};

use super::row::{Cells, all, change, limit, millis};

/// Most rows that a resume wakes; others continue when their wait is over.
const WOKEN_MAX: usize = 10_000;

pub(super) fn controls(db: &Connection) -> Result<Vec<Control>, StoreError> {
    all(db, include_str!("sql/controls.sql"), [limit(CONTROLS_MAX)], control)
}

pub(super) fn report(tx: &Transaction<'_>, update: &ReportUpdate) -> Result<(), StoreError> {
    match update {
        ReportUpdate::Write(NewReport { worker, host, pid, version, figures }) => {
            let params = (worker, host, pid, version, figures);
            change(tx, include_str!("sql/report.sql"), params)?;
            change(tx, include_str!("sql/forget_reports.sql"), [millis(REPORT_KEPT)]).map(drop)
        }
        ReportUpdate::Remove { worker } => {
            change(tx, include_str!("sql/retract_report.sql"), [worker]).map(drop)
        }
    }
}

fn control(c: &Cells<'_, '_>) -> Control {
    let number = |column: &str| u32::try_from(c.integer(column)).ok().filter(|number| *number > 0);
    let period = Duration::from_millis(c.count("rate_period_ms"));
    let pause = |at| Pause { at, by: c.string("paused_by"), reason: c.string("paused_reason") };
    Control {
        kind: c.control_kind("kind"),
        name: c.string("name"),
        pause: c.time("paused_at").map(pause),
        limits: LimitChange {
            rate: number("rate_calls").map(|calls| (calls, period)).filter(|_| !period.is_zero()),
            concurrency: number("concurrency"),
        },
        limits_changed: c.integer("limits_changed"),
        breaker_resets: c.integer("breaker_resets"),
    }
}

pub(super) fn wake_paused(tx: &Transaction<'_>) -> Result<SettleOutcome, StoreError> {
    let params = (PROCESS_TYPE_PAUSED, limit(WOKEN_MAX));
    let settled = change(tx, include_str!("sql/wake_paused.sql"), params)?;
    Ok(SettleOutcome { settled, ..SettleOutcome::default() })
}

/// Carries out a change of what runs.
pub(super) fn carry_out(tx: &Transaction<'_>, order: &ControlOrder) -> Result<bool, StoreError> {
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
    let (action, reason) = (order.audit_action(), order.audit_reason());
    change(tx, include_str!("sql/audit.sql"), (actor, action, name, reason))?;
    Ok(true)
}
