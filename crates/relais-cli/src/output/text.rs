//! Formats and escapes of short texts.

use relais_core::time::Timestamp;

/// Returns the age in its largest unit: `12s`, `3m`, `5h`, `8d`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = then.seconds_until(now);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns at most `chars_max` characters on one line, with `…` if the text is cut.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    let line = escape(text, LineBreaks::Escape);
    if line.chars().count() <= chars_max {
        return line;
    }
    let mut kept: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// The treatment of line ends and tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineBreaks {
    Keep,
    Escape,
}

/// Escapes control characters and those that change the writing direction.
pub(crate) fn escape(text: &str, lines: LineBreaks) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let keep = lines == LineBreaks::Keep && matches!(c, '\n' | '\t');
        if is_unsafe(c) && !keep {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Escapes unsafe characters in JSON that JSON itself does not escape; the value stays the same.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) && c != '\n' {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns true for characters that control a terminal: control characters, line separators, and changes of the
/// writing direction.
pub(crate) fn is_unsafe(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp(10 * 86_400 * 1_000_000);
        let ago = |seconds: i64| age(Timestamp(now.0 - seconds * 1_000_000), now);
        assert_eq!([ago(5), ago(185), ago(7_300), ago(180_000)], ["5s", "3m", "2h", "2d"]);
        assert_eq!(age(Timestamp(now.0 + 5_000_000), now), "0s");
    }

    #[test]
    fn a_message_cannot_control_the_terminal() {
        assert_eq!(escape("a\u{1b}[2Jb\nc\u{202e}", LineBreaks::Keep), "a\\u{1b}[2Jb\nc\\u{202e}");
        assert_eq!(cut("a\nb\u{7}", 20), "a\\nb\\u{7}");
        let json = "{\n  \"a\": \"\u{9b}2J\u{7f}\u{202e}\"\n}";
        assert_eq!(harmless_json(json), "{\n  \"a\": \"\\u009b2J\\u007f\\u202e\"\n}");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(cut("ééééé", 3), "éé…");
        assert_eq!(cut("ééé", 3), "ééé");
    }
}
