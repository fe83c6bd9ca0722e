//! The known word nearest to a mistyped one.

/// Returns `did you mean …?`, or all the words if none is near.
pub(super) fn suggestion(word: &str, known: &[&str], all: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let words: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
            format!("{all} {}", words.join(", "))
        }
    }
}

/// Returns the nearest of `known` if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let tolerated = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|other| (strsim::damerau_levenshtein(&word, &other.to_lowercase()), other))
        .filter(|(distance, other)| *distance <= tolerated || is_start(&word, other))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// `dest` for `destination`, but not `a` for every word that starts so.
fn is_start(word: &str, other: &str) -> bool {
    const LETTERS_MIN: usize = 3;
    word.chars().count() >= LETTERS_MIN && other.starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_word() {
        let known = ["name", "kind", "url", "headers", "destination"];
        assert_eq!(nearest("kidn", known), Some("kind"));
        assert_eq!(nearest("URI", known), Some("url"));
        assert_eq!(nearest("header", known), Some("headers"));
        assert_eq!(nearest("dest", known), Some("destination"));
        assert_eq!(nearest("htpp", ["http", "log"]), Some("http"));
    }

    #[test]
    fn something_else_altogether_finds_nothing() {
        assert_eq!(nearest("colour", ["name", "kind", "url"]), None);
        assert_eq!(nearest("", ["url"]), None);
    }
}
