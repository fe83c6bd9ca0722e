//! The string literals and comments of a Rust file: enough of a lexer to distinguish them from characters.

/// A piece of text in a Rust file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// Without its quotes.
    String,
    /// With its slashes.
    Comment,
}

/// Returns each string literal with the number of the line it starts on, without its quotes.
pub(super) fn strings(source: &str) -> Vec<(usize, &str)> {
    pieces(source, Piece::String)
}

/// Returns each line comment and block comment with the number of the line it starts on.
pub(super) fn comments(source: &str) -> Vec<(usize, &str)> {
    pieces(source, Piece::Comment)
}

fn pieces(source: &str, wanted: Piece) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut add = |at: usize, piece: Piece, text| {
        if piece == wanted {
            found.push((line_at(source, at), text));
        }
    };
    let mut at = 0;
    while at < source.len() {
        let rest = &source[at..];
        let skip = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            add(at, Piece::Comment, &rest[..length]);
            length
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            add(at, Piece::Comment, &rest[..length]);
            length
        } else if let Some(hashes) = raw_start(source, at) {
            let start = 2 + hashes;
            let end = format!("\"{}", "#".repeat(hashes));
            let length = rest[start..].find(&end).unwrap_or(rest.len() - start);
            add(at, Piece::String, &rest[start..start + length]);
            (start + length + end.len()).min(rest.len())
        } else if let Some(body) = rest.strip_prefix('"') {
            let length = plain_length(body);
            add(at, Piece::String, &body[..length]);
            (length + 2).min(rest.len())
        } else if rest.starts_with('\'') {
            character_length(rest)
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += skip;
    }
    found
}

/// The number of `#` of a raw string that starts here; not inside a name that ends in `r`.
fn raw_start(source: &str, at: usize) -> Option<usize> {
    let hashes_and_quote = source[at..].strip_prefix('r')?;
    let before = source[..at].chars().next_back();
    if before.is_some_and(|c| (c.is_alphanumeric() && c != 'b' && c != 'c') || c == '_') {
        return None;
    }
    let body = hashes_and_quote.trim_start_matches('#');
    body.starts_with('"').then(|| hashes_and_quote.len() - body.len())
}

fn plain_length(body: &str) -> usize {
    let mut escaped = false;
    for (index, c) in body.char_indices() {
        match c {
            '"' if !escaped => return index,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    body.len()
}

/// Returns the length of what starts with a `'`: a character such as `'"'` or `'\''`, or the sign of a lifetime.
fn character_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((second, c))) => {
            let from = second + c.len_utf8();
            rest[from..].find('\'').map_or(1, |end| from + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

fn line_at(source: &str, at: usize) -> usize {
    source[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_differ_from_comments_characters_and_lifetimes() {
        let source = r##"// "comment"
/* "block" */ fn f<'a>(x: &'a str) -> char { '"' }
const A: &str = "plain \" quote";
const B: &str = r#"raw "quoted""#;
let c = ['\'', '\\']; let d = b"bytes"; let e = r"x"; bar"y";
"##;
        let expected =
            [(3, "plain \\\" quote"), (4, "raw \"quoted\""), (5, "bytes"), (5, "x"), (5, "y")];
        assert_eq!(strings(source), expected);
        assert_eq!(comments(source), [(1, "// \"comment\""), (2, "/* \"block\" */")]);
    }

    #[test]
    fn an_unfinished_string_ends_with_the_file() {
        assert_eq!(strings("let a = \"é"), [(1, "é")]);
        assert_eq!(strings("let a = r#\"é"), [(1, "é")]);
    }
}
