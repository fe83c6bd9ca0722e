//! Figures: what relais costs while nothing happens, with one destination and with many.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use relais::{App, Publisher};

use crate::{
    fixture::{Database, Fixture},
    machine::cpu_time,
    options::Options,
    report::{Entry, Report, Target, Unit},
    shapes::names,
    workload::Recorder,
};

/// Numbers of destinations, and the target of this process and the database's together.
const DESTINATIONS: [(u64, f64); 4] = [(1, 1.0), (10, 1.0), (100, 1.5), (1_000, 2.0)];
const WAL_TARGET_BYTES: f64 = 5e3;
/// Until the workers have found out that there is nothing to do.
const CALM_DOWN: Duration = Duration::from_secs(2);

/// Shares of one core, and bytes of WAL a second.
struct IdleCost {
    own: f64,
    server: Option<f64>,
    wal: Option<f64>,
}

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    for (destinations, target) in DESTINATIONS {
        eprintln!("{} idle, {destinations} destinations", D::NAME);
        let fixture = database.fixture("idle").await?;
        let publisher = Arc::new(Recorder::default()) as Arc<dyn Publisher>;
        let app = App::new(fixture.store());
        let add = |app: App, name: String| app.destination(&name, Arc::clone(&publisher));
        let running = names(destinations).into_iter().fold(app, add).start();
        tokio::time::sleep(CALM_DOWN).await;
        let cost = cost(&fixture, options.size.idle_time).await;
        running.stop().await;
        fixture.remove().await?;
        let IdleCost { own, server, wal } = cost?;
        let plural = if destinations == 1 { "" } else { "s" };
        let name = format!("idle, {destinations} destination{plural}");
        let entry = |name: String, unit, value, target, note: String| Entry {
            store: D::NAME,
            name,
            unit,
            raw: Vec::new(),
            relais: vec![value],
            target: Target::AtMost(target),
            note,
        };
        let note = match server {
            Some(server) => format!("of one core: this process {own:.2}, the server {server:.2}"),
            None => "of one core".to_owned(),
        };
        let used = own + server.unwrap_or_default();
        report.add(entry(name.clone(), Unit::PercentOfCore, used, target, note));
        if let Some(wal) = wal {
            let name = format!("{name}: WAL");
            report.add(entry(name, Unit::BytesPerSecond, wal, WAL_TARGET_BYTES, String::new()));
        }
    }
    Ok(())
}

async fn cost<B: Fixture>(fixture: &B, time: Duration) -> Result<IdleCost> {
    let (own, server) = (cpu_time(std::process::id())?, fixture.server().await?);
    let started = Instant::now();
    tokio::time::sleep(time).await;
    let seconds = started.elapsed().as_secs_f64();
    let share = |used: Duration| used.as_secs_f64() / seconds * 100.0;
    let later = server.zip(fixture.server().await?);
    Ok(IdleCost {
        own: share(cpu_time(std::process::id())?.saturating_sub(own)),
        server: later.map(|(before, after)| share(after.cpu.saturating_sub(before.cpu))),
        wal: later.map(|(before, after)| (after.wal_bytes - before.wal_bytes) as f64 / seconds),
    })
}
