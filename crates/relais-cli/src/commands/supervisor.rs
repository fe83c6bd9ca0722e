//! Notifications of `relais run` to systemd (`Type=notify`, `WatchdogSec`). Without systemd they do nothing.

use std::{convert::Infallible, future, io};

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Reports readiness: units that are ordered after this one may start.
pub(super) fn ready() {
    log(sd_notify::notify(&[NotifyState::Ready]));
}

/// Reports that the process is stopping.
pub(super) fn stopping() {
    log(sd_notify::notify(&[NotifyState::Stopping]));
}

/// Notifies the watchdog twice per `WatchdogSec`, as long as the runtime runs tasks.
pub(super) async fn keep_alive() -> Infallible {
    let Some(limit) = sd_notify::watchdog_enabled() else { return future::pending().await };
    let mut ticks = interval(limit / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        log(sd_notify::notify(&[NotifyState::Watchdog]));
    }
}

fn log(notified: io::Result<()>) {
    if let Err(error) = notified {
        warn!("cannot notify systemd: {error}");
    }
}
