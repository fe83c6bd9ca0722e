//! Figure: what relais costs while nothing happens, in this process and in the database's.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use relais::App;

use crate::{
    fixture::{Database, Fixture},
    machine::cpu_time,
    options::Options,
    report::{Entry, Report, Target, Unit},
    workload::{DESTINATION, Recorder},
};

const TARGET_PERCENT: f64 = 1.0;
/// Until the workers have found out that there is nothing to do.
const CALM_DOWN: Duration = Duration::from_secs(2);

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    eprintln!("{} idle", D::NAME);
    let fixture = database.fixture("idle").await?;
    let publisher = Arc::new(Recorder::default());
    let running = App::new(fixture.store()).destination(DESTINATION, publisher).start();
    tokio::time::sleep(CALM_DOWN).await;
    let used = percent(&fixture, options.size.idle_time).await;
    running.stop().await;
    let has_backends = !fixture.backends().await?.is_empty();
    fixture.remove().await?;
    let (own, backends) = used?;
    let entry = |name: &str, percent| Entry {
        store: D::NAME,
        name: name.into(),
        unit: Unit::PercentOfCore,
        raw: Vec::new(),
        relais: vec![percent],
        target: Target::AtMost(TARGET_PERCENT),
        note: "of one core".into(),
    };
    report.add(entry("idle, this process", own));
    if has_backends {
        report.add(entry("idle, the database's processes", backends));
    }
    Ok(())
}

/// Shares of one core: this process, and the database's processes that serve it.
async fn percent<B: Fixture>(fixture: &B, time: Duration) -> Result<(f64, f64)> {
    let backends = fixture.backends().await?;
    let others = || backends.iter().map(|pid| cpu_time(*pid)).sum::<Result<Duration>>();
    let (own_before, others_before) = (cpu_time(std::process::id())?, others()?);
    let started = Instant::now();
    tokio::time::sleep(time).await;
    let share = |used: Duration| used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    let own = share(cpu_time(std::process::id())?.saturating_sub(own_before));
    Ok((own, share(others()?.saturating_sub(others_before))))
}
