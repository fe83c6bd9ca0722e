//! Controls that operators set while relais runs, and the figures that processes report.

use std::time::Duration;

use relais_core::{
    control::{
        CONTROLS_MAX, Control, ControlChange, ControlKind, ControlOrder, LimitChange,
        PROCESS_TYPE_PAUSED, Pause,
    },
    report::{NewReport, REPORT_KEPT, ReportUpdate},
    store::SettleOutcome,
};
use tokio_postgres::{Row, types::ToSql};

use super::{
    error::Failure,
    fence::settled,
    row::{self, Micros},
    session::Client,
};

/// Most rows that a resume wakes; others continue when their wait is over.
const WOKEN_MAX: usize = 10_000;

pub(super) async fn wake_paused(client: &Client<'_>) -> Result<SettleOutcome, Failure> {
    let values: [&(dyn ToSql + Sync); 2] = [&PROCESS_TYPE_PAUSED, &row::count(WOKEN_MAX)];
    Ok(settled(0, client.execute(sql!("wake_paused"), &values).await?))
}

pub(super) async fn controls(client: &Client<'_>) -> Result<Vec<Control>, Failure> {
    let statement = client.prepare_cached(sql!("controls")).await?;
    let rows = client.query(&statement, &[&row::count(CONTROLS_MAX)]).await?;
    rows.iter().map(control).collect()
}

fn control(row: &Row) -> Result<Control, Failure> {
    let number =
        |column: &str| row.get::<_, Option<i32>>(column).and_then(|n| u32::try_from(n).ok());
    let period =
        row.get::<_, Option<i64>>("rate_period_ms").map(row::amount).map(Duration::from_millis);
    let paused_at = row.get::<_, Option<Micros>>("paused_at");
    Ok(Control {
        kind: row::known(row, "kind")?,
        name: row.get("name"),
        pause: paused_at.map(|at| Pause {
            at: at.0,
            by: row.get::<_, Option<String>>("paused_by").unwrap_or_default(),
            reason: row.get::<_, Option<String>>("paused_reason").unwrap_or_default(),
        }),
        limits: LimitChange {
            rate: number("rate_calls").zip(period),
            concurrency: number("concurrency"),
        },
        limits_changed: row.get("limits_changed"),
        breaker_resets: row.get("breaker_resets"),
    })
}

/// Carries out a change of what runs.
pub(super) async fn carry_out(
    client: &mut Client<'_>,
    order: &ControlOrder,
) -> Result<bool, Failure> {
    let ControlOrder { kind, name, change, actor, reason } = order;
    let transaction = client.transaction().await?;
    let id = kind.as_str();
    let changed = match change {
        ControlChange::Pause => {
            transaction.execute(sql!("pause"), &[&id, name, actor, reason]).await?
        }
        ControlChange::Resume => transaction.execute(sql!("resume"), &[&id, name]).await?,
        ControlChange::Limit(LimitChange { rate, concurrency }) => {
            let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
            let calls = rate.map(|rate| signed(rate.0));
            let period = rate.map(|rate| row::millis(rate.1));
            let concurrency = concurrency.map(signed);
            let values: [&(dyn ToSql + Sync); 5] = [&id, name, &calls, &period, &concurrency];
            transaction.execute(sql!("set_limits"), &values).await?
        }
        ControlChange::ResetBreaker => {
            transaction.execute(sql!("reset_breaker"), &[&id, name]).await?
        }
    };
    if changed == 0 {
        return Ok(false);
    }
    if (*kind, *change) == (ControlKind::ProcessType, ControlChange::Resume) {
        let values: [&(dyn ToSql + Sync); 2] = [&PROCESS_TYPE_PAUSED, &row::count(WOKEN_MAX)];
        transaction.execute(sql!("wake_paused"), &values).await?;
    }
    let (action, reason) = (order.audit_action(), order.audit_reason());
    transaction.execute(sql!("audit"), &[actor, &action, name, &reason]).await?;
    transaction.commit().await?;
    Ok(true)
}

pub(super) async fn report(client: &mut Client<'_>, update: &ReportUpdate) -> Result<(), Failure> {
    let NewReport { worker, host, pid, version, figures } = match update {
        ReportUpdate::Write(report) => report,
        ReportUpdate::Remove { worker } => {
            client.execute(sql!("retract_report"), &[worker]).await?;
            return Ok(());
        }
    };
    let replace = client.prepare_cached(sql!("report")).await?;
    let forget = client.prepare_cached(sql!("forget_reports")).await?;
    let transaction = client.transaction().await?;
    let pid = i64::from(*pid);
    transaction.execute(&replace, &[worker, host, &pid, version, figures]).await?;
    transaction.execute(&forget, &[&row::millis(REPORT_KEPT)]).await?;
    transaction.commit().await?;
    Ok(())
}
