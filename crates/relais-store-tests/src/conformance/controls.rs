//! Pauses, limits and resets that operators ask for, and the figures that processes report.

use std::time::Duration;

use relais_core::{
    control::{
        Control, ControlChange, ControlKind, ControlOrder, LimitChange, PROCESS_TYPE_PAUSED,
    },
    delivery::Problem,
    inbox::InboxFate,
    inspect::{AuditFilter, InspectExt},
    report::{NewReport, ReportUpdate},
    store::RowMark,
};

use super::{Start, worker::Worker};
use crate::{build::arrival, fixture::Fixture};

pub const START: Start = Start::Migrated;

fn order(kind: ControlKind, name: &str, change: ControlChange) -> ControlOrder {
    let (actor, reason) = ("ann".to_owned(), "it's maintenance 😀".to_owned());
    ControlOrder { kind, name: name.to_owned(), change, actor, reason }
}

async fn control(f: &dyn Fixture, kind: ControlKind, name: &str, change: ControlChange) -> bool {
    f.store().control(order(kind, name, change)).await.expect("control")
}

/// As another process reads them.
async fn controls(f: &dyn Fixture) -> Vec<Control> {
    f.second().controls().await.expect("controls")
}

async fn audited(f: &dyn Fixture) -> Vec<String> {
    let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
    let lines = f.store().list_audit(filter).await.expect("audit");
    lines.into_iter().rev().map(|line| format!("{} {}", line.action, line.target)).collect()
}

pub async fn a_pause_is_read_by_every_process_until_it_ends(f: &dyn Fixture) {
    assert_eq!(controls(f).await, []);
    for kind in ControlKind::ALL {
        let before = f.now().await;
        assert!(control(f, kind, "grüße", ControlChange::Pause).await);
        let paused = controls(f).await;
        assert_eq!((paused.len(), paused[0].kind, paused[0].name.as_str()), (1, kind, "grüße"));
        let pause = paused[0].pause.clone().expect("paused");
        assert!(before <= pause.at && pause.at <= f.now().await);
        assert_eq!((pause.by.as_str(), pause.reason.as_str()), ("ann", "it's maintenance 😀"));
        assert!(control(f, kind, "grüße", ControlChange::Resume).await);
        assert_eq!(controls(f).await[0].pause, None);
        f.execute("DELETE FROM relais_control").await.expect("clear");
    }
}

pub async fn a_second_pause_changes_nothing_and_is_not_recorded(f: &dyn Fixture) {
    let kind = ControlKind::Destination;
    assert!(!control(f, kind, "orders", ControlChange::Resume).await, "never paused");
    assert!(control(f, kind, "orders", ControlChange::Pause).await);
    let first = controls(f).await;
    assert!(!control(f, kind, "orders", ControlChange::Pause).await);
    assert_eq!(controls(f).await, first);
    assert!(control(f, kind, "orders", ControlChange::Resume).await);
    assert!(!control(f, kind, "orders", ControlChange::Resume).await);
    assert_eq!(audited(f).await, ["destination.paused orders", "destination.resumed orders"]);
}

pub async fn limits_and_resets_are_numbered(f: &dyn Fixture) {
    let kind = ControlKind::Destination;
    let limits = LimitChange { rate: Some((50, Duration::from_secs(60))), concurrency: Some(3) };
    assert!(control(f, kind, "orders", ControlChange::Limit(limits)).await);
    assert!(control(f, kind, "orders", ControlChange::ResetBreaker).await);
    let rows = controls(f).await;
    assert_eq!((rows[0].limits, rows[0].limits_changed, rows[0].breaker_resets), (limits, 1, 1));
    assert!(control(f, kind, "orders", ControlChange::Pause).await);
    assert!(control(f, kind, "orders", ControlChange::ResetBreaker).await);
    assert!(control(f, kind, "orders", ControlChange::Limit(LimitChange::default())).await);
    let row = controls(f).await.remove(0);
    assert_eq!((row.limits, row.limits_changed), (LimitChange::default(), 2));
    assert_eq!((row.breaker_resets, row.pause.is_some()), (2, true));
    let recorded = audited(f).await;
    assert_eq!(recorded.len(), 5, "{recorded:?}");
    assert_eq!(recorded[..2], ["destination.limited orders", "destination.breaker-reset orders"]);
}

pub async fn a_resumed_process_type_ends_the_wait_of_its_rows(f: &dyn Fixture) {
    let kind = ControlKind::ProcessType;
    assert!(control(f, kind, "checkout", ControlChange::Pause).await);
    f.store().accept(vec![arrival("1"), arrival("2")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(10).await;
    let wait = |code: &str| InboxFate::Wait {
        pause: Duration::from_secs(600),
        problem: Problem::new(code, "waits"),
        lost_workers: 0,
    };
    worker.settle_inbox(&rows[0], wait(PROCESS_TYPE_PAUSED)).await;
    worker.settle_inbox(&rows[1], wait("OTHER")).await;
    assert_eq!(worker.received(10).await.len(), 0);
    assert!(control(f, kind, "checkout", ControlChange::Resume).await);
    let again: Vec<i64> = worker.received(10).await.iter().map(|row| row.id).collect();
    assert_eq!(again, [rows[0].id], "only those that waited for the process type");
    worker.settle_inbox(&rows[0], wait(PROCESS_TYPE_PAUSED)).await;
    assert_eq!(f.store().mark_rows(RowMark::ResumedProcessTypes).await.expect("wake").settled, 1);
    assert_eq!(worker.received(10).await.len(), 1, "for a worker that let it wait too late");
}

pub async fn a_report_replaces_the_last_one_of_its_process(f: &dyn Fixture) {
    let report = |worker: &str, figures: &str| NewReport {
        worker: worker.to_owned(),
        host: "höst".to_owned(),
        pid: u32::MAX,
        version: "0.1.0".to_owned(),
        figures: figures.to_owned(),
    };
    let before = f.now().await;
    f.store().report(ReportUpdate::Write(report("w-1", "{}"))).await.expect("report");
    f.store().report(ReportUpdate::Write(report("w-2", "{}"))).await.expect("report");
    f.store().report(ReportUpdate::Write(report("w-1", "{\"n\":1}"))).await.expect("report");
    let read = f.second().reports().await.expect("reports");
    let seen: Vec<_> = read.iter().map(|r| (r.worker.as_str(), r.figures.as_str())).collect();
    assert_eq!(seen, [("w-1", "{\"n\":1}"), ("w-2", "{}")]);
    let first = &read[0];
    assert_eq!((first.host.as_str(), first.pid, first.alive), ("höst", u32::MAX, true));
    assert!(before <= first.started_at && first.started_at <= first.reported_at);
    f.store().report(ReportUpdate::Remove { worker: "w-1".to_owned() }).await.expect("retract");
    assert_eq!(f.second().reports().await.expect("reports").len(), 1);
}

pub async fn a_silent_process_is_lost_and_then_forgotten(f: &dyn Fixture) {
    let report = |worker: &str| NewReport {
        worker: worker.to_owned(),
        host: String::new(),
        pid: 1,
        version: String::new(),
        figures: "{}".to_owned(),
    };
    f.store().report(ReportUpdate::Write(report("w-1"))).await.expect("report");
    let minute = f.dialect().ago(60);
    f.execute(&format!("UPDATE relais_report SET reported_at = {minute}")).await.expect("age");
    f.store().report(ReportUpdate::Write(report("w-2"))).await.expect("report");
    let alive = f.store().reports().await.expect("reports");
    assert_eq!(alive.iter().map(|r| r.alive).collect::<Vec<_>>(), [false, true]);
    let hour = f.dialect().ago(3_600);
    let age = format!("UPDATE relais_report SET reported_at = {hour} WHERE worker = 'w-1'");
    f.execute(&age).await.expect("age");
    f.store().report(ReportUpdate::Write(report("w-2"))).await.expect("report");
    assert_eq!(f.store().reports().await.expect("reports").len(), 1);
}
