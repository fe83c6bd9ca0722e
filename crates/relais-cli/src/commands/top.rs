//! `relais top`: everything that moves, live on the terminal; as one picture, or as JSON lines, elsewhere.
//!
//! - `look`: what there is to see; `rates`: how fast it moves
//! - `picture`: what is drawn; `screen`: where

mod look;
mod picture;
mod rates;
mod screen;

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::MissedTickBehavior,
};

use self::{
    look::{Look, Looker, Place},
    picture::{Choice, Scene, WIDTH, choices, picture},
    rates::{History, Rates},
    screen::{Key, Screen},
};
use super::Context;
use crate::{
    args::TopArgs,
    failure::{Done, Failure},
};

pub(crate) async fn top(context: &Context, args: &TopArgs) -> Done {
    let (settings, store) = context.store().await?;
    let place = Place::new(&settings);
    let mut looker = Looker::new(store, settings.admin, args.access.clone());
    let live = context.output.terminal && io::stdin().is_terminal();
    match (context.output.json, args.once || !live) {
        (true, _) => snapshots(&mut looker, args).await,
        (false, true) => once(context, &mut looker, &place, args.every).await,
        (false, false) => watch(context, &mut looker, &place, args.every).await,
    }
}

/// One line of `--json`.
#[derive(Serialize)]
struct Snapshot<'a> {
    #[serde(flatten)]
    look: &'a Look,
    /// Absent in the first, which has nothing to be compared with.
    rates: Option<&'a Rates>,
}

/// One line each, until nobody reads them any more; with `--once` one.
async fn snapshots(looker: &mut Looker, args: &TopArgs) -> Done {
    let mut history = History::default();
    loop {
        let look = looker.look().await?;
        history.add(&look);
        let snapshot = Snapshot { look: &look, rates: history.now() };
        if !(args.once && snapshot.rates.is_none()) {
            let line = serde_json::to_string(&snapshot).map_err(Failure::failed)?;
            match writeln!(io::stdout(), "{line}") {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            }
            if args.once {
                return Ok(());
            }
        }
        tokio::time::sleep(args.every).await;
    }
}

/// Two looks, because rates are differences.
async fn once(context: &Context, looker: &mut Looker, place: &Place, every: Duration) -> Done {
    let mut history = History::default();
    let mut look = looker.look().await?;
    history.add(&look);
    while history.now().is_none() {
        tokio::time::sleep(every).await;
        look = looker.look().await?;
        history.add(&look);
    }
    let choice = Choice { destination: usize::MAX, ..Choice::default() };
    let width = context.output.width.unwrap_or(WIDTH);
    let scene =
        Scene { place, look: &look, history: &history, choice: &choice, trouble: None, width };
    let lines = picture(&scene).into_iter().map(|line| {
        let text: String = line.into_iter().map(|(text, _)| text).collect();
        text.trim_end().to_owned()
    });
    context.output.print(&lines.collect::<Vec<_>>().join("\n"))
}

/// Looks and draws until somebody has seen enough.
async fn watch(context: &Context, looker: &mut Looker, place: &Place, every: Duration) -> Done {
    let (mut history, mut choice) = (History::default(), Choice::default());
    let mut look = looker.look().await?;
    history.add(&look);
    let mut trouble: Option<String> = None;
    let mut ended = signal(SignalKind::terminate())?;
    let mut keys = screen::keys();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen::enter(context.output)?;
    loop {
        let trouble_now = trouble.as_deref();
        let width = screen.width()?;
        let scene = Scene {
            place,
            look: &look,
            history: &history,
            choice: &choice,
            trouble: trouble_now,
            width,
        };
        screen.draw(&picture(&scene))?;
        tokio::select! {
            _ = ended.recv() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(Key::Quit) => return Ok(()),
                Some(key) => pressed(&mut choice, key, choices(place, &look)),
            },
            _ = ticks.tick(), if !choice.paused => match looker.look().await {
                Ok(seen) => {
                    history.add(&seen);
                    (look, trouble) = (seen, None);
                }
                // It may come back; whoever looks wants to see that.
                Err(failure) => trouble = Some(failure.to_string()),
            },
        }
    }
}

fn pressed(choice: &mut Choice, key: Key, destinations: usize) {
    match key {
        Key::Pause => choice.paused = !choice.paused,
        Key::Help => choice.help = !choice.help,
        Key::Up => choice.destination = choice.destination.saturating_sub(1),
        Key::Down => {
            choice.destination = (choice.destination + 1).min(destinations.saturating_sub(1));
        }
        Key::Quit | Key::Resized => {}
    }
}

#[cfg(test)]
pub(super) mod tests;
