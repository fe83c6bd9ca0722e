//! `relais top`: rates and backlogs, live on the terminal, once as text, or as JSON lines.
//!
//! - `state`: reads the state; `rates`: computes rates
//! - `picture`: renders lines; `screen`: draws them on the terminal

mod picture;
mod rates;
mod screen;
mod state;

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
    picture::{Choice, SelectedRow, TopView, WIDTH, choices, picture},
    rates::{RateHistory, TopRates},
    screen::{KeyCommand, Screen},
    state::{StateReader, TopConfig, TopState},
};
use super::CommandContext;
use crate::{
    args::TopArgs,
    failure::{CommandError, Done},
};

pub(crate) async fn top(context: &CommandContext, args: &TopArgs) -> Done {
    let (settings, store) = context.store().await?;
    let place = TopConfig::new(&settings);
    let mut reader = StateReader::new(store, settings.admin, args.access.clone());
    let live = context.output.terminal && io::stdin().is_terminal();
    match (context.output.json, args.once || !live) {
        (true, _) => snapshots(&mut reader, args).await,
        (false, true) => once(context, &mut reader, &place, args.every).await,
        (false, false) => watch(context, &mut reader, &place, args.every).await,
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct TopSnapshot<'a> {
    #[serde(flatten)]
    state: &'a TopState,
    /// Absent in the first line.
    rates: Option<&'a TopRates>,
}

/// Prints lines until stdout is closed; with `--once` one line.
async fn snapshots(reader: &mut StateReader, args: &TopArgs) -> Done {
    let mut history = RateHistory::default();
    loop {
        let state = reader.read().await?;
        history.add(&state);
        let snapshot = TopSnapshot { state: &state, rates: history.now() };
        if !(args.once && snapshot.rates.is_none()) {
            let line = serde_json::to_string(&snapshot).map_err(CommandError::failed)?;
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

/// Reads the state twice, because rates are differences, and prints it.
async fn once(
    context: &CommandContext,
    reader: &mut StateReader,
    place: &TopConfig,
    every: Duration,
) -> Done {
    let mut history = RateHistory::default();
    let mut state = reader.read().await?;
    history.add(&state);
    while history.now().is_none() {
        tokio::time::sleep(every).await;
        state = reader.read().await?;
        history.add(&state);
    }
    let choice = Choice { destination: SelectedRow::InTrouble, ..Choice::default() };
    let width = context.output.width.unwrap_or(WIDTH);
    let scene =
        TopView { place, state: &state, history: &history, choice: &choice, trouble: None, width };
    let lines = picture(&scene).into_iter().map(|line| {
        let text: String = line.into_iter().map(|(text, _)| text).collect();
        text.trim_end().to_owned()
    });
    context.output.print(&lines.collect::<Vec<_>>().join("\n"))
}

/// Reads and draws the state until the operator quits.
async fn watch(
    context: &CommandContext,
    reader: &mut StateReader,
    place: &TopConfig,
    every: Duration,
) -> Done {
    let (mut history, mut choice) = (RateHistory::default(), Choice::default());
    let mut state = reader.read().await?;
    history.add(&state);
    let mut trouble: Option<String> = None;
    let mut ended = signal(SignalKind::terminate())?;
    let mut keys = screen::keys();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen::enter(context.output)?;
    loop {
        let trouble_now = trouble.as_deref();
        let width = screen.width()?;
        let scene = TopView {
            place,
            state: &state,
            history: &history,
            choice: &choice,
            trouble: trouble_now,
            width,
        };
        screen.draw(&picture(&scene))?;
        tokio::select! {
            _ = ended.recv() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(KeyCommand::Quit) => return Ok(()),
                Some(key) => pressed(&mut choice, key, choices(place, &state)),
            },
            _ = ticks.tick(), if !choice.paused => match reader.read().await {
                Ok(seen) => {
                    history.add(&seen);
                    (state, trouble) = (seen, None);
                }
                // The database may be available again soon, so the screen stays.
                Err(failure) => trouble = Some(failure.to_string()),
            },
        }
    }
}

fn pressed(choice: &mut Choice, key: KeyCommand, destinations: usize) {
    match key {
        KeyCommand::Pause => choice.paused = !choice.paused,
        KeyCommand::Help => choice.help = !choice.help,
        KeyCommand::Up => choice.select(|at| at.saturating_sub(1)),
        KeyCommand::Down => choice.select(|at| (at + 1).min(destinations.saturating_sub(1))),
        KeyCommand::Quit | KeyCommand::Resized => {}
    }
}

#[cfg(test)]
pub(super) mod tests;
