//! What operators change while relais runs, and the figures that processes report.

use std::time::Duration;

use relais_core::{
    control::{
        CONTROLS_MAX, Control, ControlChange, ControlKind, ControlOrder, Controls, LimitChange,
        PROCESS_TYPE_PAUSED, Pause,
    },
    report::{NewReport, REPORT_KEPT, REPORT_VALID, REPORTS_MAX, Report, Reports},
    store::StoreFuture,
};
use tokio_postgres::{Row, types::ToSql};

use super::{
    PostgresStore,
    error::Failure,
    row::{self, Micros},
    session::Client,
};

/// Rows whose wait ends with a resume; more of them continue when their pause is over.
const WOKEN_MAX: usize = 10_000;

impl Controls for PostgresStore {
    fn controls(&self) -> StoreFuture<'_, Vec<Control>> {
        self.run_lease((), |client, _, ()| Box::pin(controls(client)))
    }

    fn control(&self, order: ControlOrder) -> StoreFuture<'_, bool> {
        self.run_other(order, |client, _, order| Box::pin(carry_out(client, order)))
    }

    fn wake_paused(&self) -> StoreFuture<'_, u64> {
        self.run((), |client, _, ()| {
            Box::pin(async move {
                let values: [&(dyn ToSql + Sync); 2] =
                    [&PROCESS_TYPE_PAUSED, &row::count(WOKEN_MAX)];
                Ok(client.execute(sql!("wake_paused"), &values).await?)
            })
        })
    }
}

impl Reports for PostgresStore {
    fn report(&self, report: NewReport) -> StoreFuture<'_, ()> {
        self.run_lease(report, |client, _, report| Box::pin(write(client, report)))
    }

    fn reports(&self) -> StoreFuture<'_, Vec<Report>> {
        self.run_other((), |client, _, ()| Box::pin(reports(client)))
    }

    fn retract_report(&self, worker: String) -> StoreFuture<'_, ()> {
        self.run_lease(worker, |client, _, worker| {
            Box::pin(async move {
                client.execute(sql!("retract_report"), &[worker]).await?;
                Ok(())
            })
        })
    }
}

async fn controls(client: &Client<'_>) -> Result<Vec<Control>, Failure> {
    let statement = client.prepare_cached(sql!("controls")).await?;
    let rows = client.query(&statement, &[&row::count(CONTROLS_MAX)]).await?;
    rows.iter().map(control).collect()
}

fn control(row: &Row) -> Result<Control, Failure> {
    let number = |column| row.get::<_, Option<i32>>(column).and_then(|n| u32::try_from(n).ok());
    let period = row.get::<_, Option<i64>>(6).map(row::amount).map(Duration::from_millis);
    let paused_at = row.get::<_, Option<Micros>>(2);
    Ok(Control {
        kind: row::known(row, 0)?,
        name: row.get(1),
        pause: paused_at.map(|at| Pause {
            at: at.0,
            by: row.get::<_, Option<String>>(3).unwrap_or_default(),
            reason: row.get::<_, Option<String>>(4).unwrap_or_default(),
        }),
        limits: LimitChange { rate: number(5).zip(period), concurrency: number(7) },
        limits_changed: row.get(8),
        breaker_resets: row.get(9),
    })
}

async fn carry_out(client: &mut Client<'_>, order: &ControlOrder) -> Result<bool, Failure> {
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
    transaction.execute(sql!("audit"), &[actor, &order.audit_action(), name, reason]).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn write(client: &mut Client<'_>, report: &NewReport) -> Result<(), Failure> {
    let NewReport { worker, host, pid, version, figures } = report;
    let replace = client.prepare_cached(sql!("report")).await?;
    let forget = client.prepare_cached(sql!("forget_reports")).await?;
    let transaction = client.transaction().await?;
    let pid = i64::from(*pid);
    transaction.execute(&replace, &[worker, host, &pid, version, figures]).await?;
    transaction.execute(&forget, &[&row::millis(REPORT_KEPT)]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn reports(client: &Client<'_>) -> Result<Vec<Report>, Failure> {
    let statement = client.prepare_cached(sql!("reports")).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&row::millis(REPORT_VALID), &row::count(REPORTS_MAX)];
    let rows = client.query(&statement, &values).await?;
    let read = |row: &Row| Report {
        worker: row.get(0),
        host: row.get(1),
        pid: u32::try_from(row.get::<_, i64>(2)).unwrap_or_default(),
        version: row.get(3),
        started_at: row.get::<_, Micros>(4).0,
        reported_at: row.get::<_, Micros>(5).0,
        alive: row.get(6),
        figures: row.get(7),
    };
    Ok(rows.iter().map(read).collect())
}
