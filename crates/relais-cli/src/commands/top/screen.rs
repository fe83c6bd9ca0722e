//! The alternate screen of the terminal, restored in any case.

use std::{
    io::{self, Stdout, stdout},
    time::Duration,
};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        execute,
        terminal::{
            Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
            enable_raw_mode,
        },
    },
    layout::{Constraint, Layout},
    style::{Color, Style},
    text::{Line as Shown, Span},
    widgets::Paragraph,
};
use tokio::sync::mpsc;

use super::picture::{Line, WIDTH};
use crate::output::{Output, Tone};

/// Interval at which the keyboard thread checks whether its receiver exists.
const LISTEN: Duration = Duration::from_millis(200);
/// Most unread keys.
const KEYS_MAX: usize = 16;
/// The last line.
const KEYS: &str = " q quit   p pause   up/down destination   ? help";

/// The alternate screen while this value exists.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    color: bool,
}

impl Screen {
    pub(super) fn enter(output: Output) -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        enable_raw_mode()?;
        // From here on `drop` restores the terminal.
        let mut screen = Self { terminal, color: output.color };
        // ratatui would query the cursor position, which some terminals do not answer.
        execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        screen.terminal.hide_cursor()?;
        Ok(screen)
    }

    /// Returns the width; the default for a terminal without a known size.
    pub(super) fn width(&self) -> io::Result<usize> {
        let width = usize::from(self.terminal.size()?.width);
        Ok(if width == 0 { WIDTH } else { width })
    }

    /// Writes only changed cells, so that nothing flickers.
    pub(super) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let color = self.color;
        self.terminal.draw(|frame| {
            let [above, below] =
                Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
            let lines: Vec<Shown<'_>> = lines.iter().map(|line| shown(line, color)).collect();
            frame.render_widget(Paragraph::new(lines), above);
            frame.render_widget(Paragraph::new(KEYS), below);
        })?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal needs no restore.
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn shown(line: &Line, color: bool) -> Shown<'_> {
    let piece = |(text, tone): &'_ (String, Tone)| {
        let style = match tone_color(*tone).filter(|_| color) {
            Some(color) => Style::new().fg(color),
            None => Style::new(),
        };
        Span::styled(text.clone(), style)
    };
    line.iter().map(piece).collect::<Vec<_>>().into()
}

fn tone_color(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Waiting => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
    }
}

/// A command of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyCommand {
    Quit,
    Pause,
    Up,
    Down,
    Help,
    /// The size of the terminal has changed.
    Resized,
}

/// Reads the keyboard in its own thread until the receiver is dropped.
pub(super) fn keys() -> mpsc::Receiver<KeyCommand> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let read = event::poll(LISTEN).and_then(|ready| ready.then(event::read).transpose());
            let Ok(read) = read else { break };
            let Some(key) = read.as_ref().and_then(key) else { continue };
            if sender.blocking_send(key).is_err() {
                break;
            }
        }
    });
    receiver
}

fn key(event: &Event) -> Option<KeyCommand> {
    let pressed = match event {
        Event::Resize(..) => return Some(KeyCommand::Resized),
        Event::Key(pressed) if pressed.kind != KeyEventKind::Release => pressed,
        _ => return None,
    };
    match pressed.code {
        KeyCode::Char('c') if pressed.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(KeyCommand::Quit)
        }
        KeyCode::Char('q') | KeyCode::Esc => Some(KeyCommand::Quit),
        KeyCode::Char('p') | KeyCode::Char(' ') => Some(KeyCommand::Pause),
        KeyCode::Char('?') | KeyCode::Char('h') => Some(KeyCommand::Help),
        KeyCode::Up | KeyCode::Char('k') => Some(KeyCommand::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(KeyCommand::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_have_their_meaning() {
        let pressed = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE), Some(KeyCommand::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(KeyCommand::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(pressed(KeyCode::Up, KeyModifiers::NONE), Some(KeyCommand::Up));
        assert_eq!(key(&Event::Resize(80, 24)), Some(KeyCommand::Resized));
    }
}
