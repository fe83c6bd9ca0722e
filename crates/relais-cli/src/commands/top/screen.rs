//! The terminal: taken over while somebody looks, given back in any case.

use std::{
    io::{self, Write, stdout},
    time::Duration,
};

use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    execute, queue,
    style::{Color, Print, ResetColor, SetForegroundColor},
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode, size,
    },
};
use tokio::sync::mpsc;

use super::picture::Line;
use crate::output::{Output, Tone};

/// How often the keyboard thread looks whether anybody still listens.
const LISTEN: Duration = Duration::from_millis(200);
/// Keys that wait to be read.
const KEYS_MAX: usize = 16;
/// The last line.
const KEYS: &str = " q quit   p pause   up/down destination   ? help";

/// The terminal as long as this lives.
pub(super) struct Screen {
    color: bool,
}

impl Screen {
    pub(super) fn enter(output: Output) -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on the drop gives everything back.
        let screen = Self { color: output.color };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Over the last picture, line by line, so that nothing flickers.
    pub(super) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let (width, height) = match size()? {
            // A terminal that does not know its size.
            (0, _) | (_, 0) => (80, 24),
            known => known,
        };
        let mut out = io::BufWriter::new(stdout().lock());
        for (row, line) in lines.iter().take(usize::from(height.saturating_sub(1))).enumerate() {
            queue!(out, MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX)))?;
            for (text, tone) in cut(line, usize::from(width)) {
                match color(tone).filter(|_| self.color) {
                    Some(color) => {
                        queue!(out, SetForegroundColor(color), Print(text), ResetColor)?;
                    }
                    None => queue!(out, Print(text))?,
                }
            }
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        let keys: String = KEYS.chars().take(usize::from(width)).collect();
        queue!(out, Clear(ClearType::FromCursorDown), MoveTo(0, height.saturating_sub(1)))?;
        queue!(out, Print(keys))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// At most so many characters of a line.
pub(super) fn cut(line: &Line, width: usize) -> Vec<(String, Tone)> {
    let mut left = width;
    let mut pieces = Vec::with_capacity(line.len());
    for (text, tone) in line {
        let kept: String = text.chars().take(left).collect();
        left -= kept.chars().count();
        pieces.push((kept, *tone));
    }
    pieces
}

fn color(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Waiting => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
    }
}

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Pause,
    Up,
    Down,
    Help,
    /// The terminal has another size.
    Resized,
}

/// Reads the keyboard in a thread of its own until nobody listens any more.
pub(super) fn keys() -> mpsc::Receiver<Key> {
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

fn key(event: &Event) -> Option<Key> {
    let pressed = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(pressed) if pressed.kind != KeyEventKind::Release => pressed,
        _ => return None,
    };
    match pressed.code {
        KeyCode::Char('c') if pressed.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('p') | KeyCode::Char(' ') => Some(Key::Pause),
        KeyCode::Char('?') | KeyCode::Char('h') => Some(Key::Help),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
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
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(pressed(KeyCode::Up, KeyModifiers::NONE), Some(Key::Up));
        assert_eq!(key(&Event::Resize(80, 24)), Some(Key::Resized));
    }

    #[test]
    fn a_line_never_leaves_the_screen() {
        let line = vec![("häßlich".to_owned(), Tone::Plain), ("!!".to_owned(), Tone::Bad)];
        let text = |width| cut(&line, width).into_iter().map(|(text, _)| text).collect::<String>();
        assert_eq!(text(8), "häßlich!");
        assert_eq!(text(2), "hä");
        assert_eq!(text(0), "");
    }
}
