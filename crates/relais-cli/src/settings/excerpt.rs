//! The source line of a problem, with a caret below it.
//!
//! Invariant: only keys, punctuation and values of keys that are not hidden are shown. Every other value is
//! masked, whatever key it has; comments are left out.

use std::{fmt::Write, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::findings::FilePlace;
use crate::output::{LineBreaks, escape};

const MASK: &str = "\"…\"";
/// The most characters of a line that are shown.
const LINE_MAX: usize = 160;

/// A line as it may be shown, and the part of it that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    line: String,
    marked: Range<usize>,
}

impl Excerpt {
    /// Returns the lines below a finding: the source line with its number, and the carets.
    pub(super) fn render(&self, number: usize, code: u8, color: bool) -> String {
        let gutter = " ".repeat(number.to_string().len());
        let blue = |text: &str| paint(text, "1;34", color);
        let carets = "^".repeat(self.marked.len().max(1));
        let carets = paint(&carets, &format!("1;{code}"), color);
        let (bar, number) = (blue(&format!("{gutter} |")), blue(&format!("{number} |")));
        let space = " ".repeat(self.marked.start);
        format!("\n{bar}\n{number} {}\n{bar} {space}{carets}", self.line)
    }
}

/// Returns the text in a colour of the terminal, if colours are used.
pub(super) fn paint(text: &str, code: &str, color: bool) -> String {
    if color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Every value of a file that is no table, by its bytes.
pub(super) fn values(table: &DeTable<'_>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (_, value) in table {
        leaves(value, &mut found);
    }
    found.sort_by_key(|range| range.start);
    found
}

/// Adds the bytes of a value, or of every value in it.
pub(super) fn leaves(value: &Spanned<DeValue<'_>>, found: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) => table.values().for_each(|value| leaves(value, found)),
        DeValue::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        _ => found.push(value.span()),
    }
}

/// Returns the line of a place. Of `values`, only those in `shown` are visible.
pub(super) fn excerpt(
    text: &str,
    place: FilePlace,
    values: &[Range<usize>],
    shown: &[Range<usize>],
) -> Option<Excerpt> {
    let line = line_at(text, place.start);
    let (mut out, mut at) = (String::new(), line.start);
    let mut marked = None..None;
    while at < line.end {
        let value = values.iter().find(|value| value.contains(&at));
        let next = match value {
            Some(value) if !shown.contains(value) => {
                mark(&mut marked, place, at..value.end, &out, MASK.chars().count());
                out.push_str(MASK);
                value.end
            }
            _ => {
                let c = text[at..].chars().next()?;
                if c == '#' && value.is_none() && !is_quoted(&text[line.start..at]) {
                    break;
                }
                let shown = escape(c.encode_utf8(&mut [0; 4]), LineBreaks::Escape);
                mark(&mut marked, place, at..at + c.len_utf8(), &out, shown.chars().count());
                out.push_str(&shown);
                at + c.len_utf8()
            }
        };
        at = next;
    }
    finish(&out, marked.start.unwrap_or(0)..marked.end.unwrap_or(1))
}

/// Extends the marked columns by a piece of the line that is about to be added.
fn mark(
    marked: &mut Range<Option<usize>>,
    place: FilePlace,
    piece: Range<usize>,
    out: &str,
    width: usize,
) {
    if piece.start < place.end && piece.end > place.start {
        let column = out.chars().count();
        marked.start.get_or_insert(column);
        marked.end = Some(column + width);
    }
}

/// A `#` in a quoted key begins no comment.
fn is_quoted(before: &str) -> bool {
    before.matches('"').count() % 2 == 1 || before.matches('\'').count() % 2 == 1
}

/// Returns the line of a syntax error as far as it is a header, or the key before `=`. Inside a string of
/// several lines nothing is shown.
pub(super) fn broken(text: &str, place: FilePlace) -> Option<Excerpt> {
    let line = line_at(text, place.start);
    let before = &text[..line.start];
    if before.contains("\"\"\"") || before.contains("'''") {
        return None;
    }
    let line = &text[line];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-. []".contains(c);
    let plain = line.split(|c| !is_plain(c)).next().unwrap_or_default();
    let is_key = line[plain.len()..].starts_with('=') && !plain.contains(['[', ']']);
    let is_header = plain.trim_start().starts_with('[');
    if !is_key && !is_header {
        return None;
    }
    let mut out = plain.trim_end().to_owned();
    if is_key {
        let _ = write!(out, " = …");
    } else if plain.len() < line.trim_end().len() {
        out.push('…');
    }
    let column = (place.column - 1).min(out.chars().count());
    finish(&out, column..column + 1)
}

fn finish(line: &str, marked: Range<usize>) -> Option<Excerpt> {
    let line: String = line.trim_end().chars().take(LINE_MAX).collect();
    let start = marked.start.min(line.chars().count());
    let end = marked.end.clamp(start, line.chars().count().max(start));
    (!line.is_empty()).then_some(Excerpt { line, marked: start..end })
}

fn line_at(text: &str, byte: usize) -> Range<usize> {
    let start = text[..byte].rfind('\n').map_or(0, |at| at + 1);
    let end = text[byte..].find('\n').map_or(text.len(), |at| byte + at);
    start..end
}
