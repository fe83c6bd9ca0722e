//! The known word nearest to a mistyped one.

/// The nearest of `known` if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let tolerated = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= tolerated || is_start(&word, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `dest` for `destination`, but not `a` for everything that starts so.
fn is_start(word: &str, candidate: &str) -> bool {
    const LETTERS_MIN: usize = 3;
    word.chars().count() >= LETTERS_MIN && candidate.starts_with(word)
}

/// Edits between two words; exchanging two neighbours is one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
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
