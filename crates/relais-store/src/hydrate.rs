//! The user's statement that reads fresh data by id, and what comes of its rows: the part that is the
//! same for every database.
//!
//! Invariant: ids never become part of the statement's text; they are bound where `IN (:ids)` stands.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use relais_core::{
    hydrate::{HydratedRecords, Record},
    store::StoreError,
};
use serde_json::Value;

/// Ids bound at a time.
pub(crate) const IDS_MAX: usize = 1_000;

/// A statement around its one place for ids.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    before: String,
    after: String,
}

impl Template {
    /// Refuses, with what to do, all but one reading statement with one `IN (:ids)`.
    pub(crate) fn parse(sql: &str) -> Result<Self, String> {
        let code = mask(sql)?;
        let end = code.trim_end().trim_end_matches([';', ' ', '\t', '\r', '\n']).len();
        let (sql, code) = (&sql[..end], &code[..end]);
        if code.contains(';') {
            return Err("only one statement is allowed; remove what stands behind the `;`".into());
        }
        let first = code.trim_start().split(|c: char| !c.is_alphanumeric()).next();
        let first = first.unwrap_or_default();
        if !["SELECT", "WITH"].iter().any(|word| first.eq_ignore_ascii_case(word)) {
            return Err(format!("it must begin with SELECT or WITH, not `{first}`"));
        }
        brackets(code)?;
        let place = place(code)?;
        Ok(Self { before: sql[..place.start].to_owned(), after: sql[place.end..].to_owned() })
    }

    /// The statement with this condition in the place of `IN (:ids)`.
    pub(crate) fn with(&self, condition: &str) -> String {
        format!("{}{condition}{}", self.before, self.after)
    }
}

/// The statement with blanks for what is in quotes or a comment; as long as it was.
fn mask(sql: &str) -> Result<String, String> {
    let bytes = sql.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &sql[at..];
        let length = match bytes[at] {
            b'\'' if after_escape_mark(&bytes[..at]) => quoted(rest, '\'', Some('\\')),
            b'\'' => quoted(rest, '\'', None),
            b'"' => quoted(rest, '"', None),
            b'`' => quoted(rest, '`', None),
            b'-' if rest.starts_with("--") => Some(rest.find('\n').unwrap_or(rest.len())),
            b'/' if rest.starts_with("/*") => comment(rest),
            b'$' => dollar_quoted(rest),
            _ => Some(0),
        };
        let length = length.ok_or("it ends inside quotes or a comment; close them")?;
        code[at..at + length].fill(b' ');
        at += length.max(rest.chars().next().map_or(1, char::len_utf8));
    }
    Ok(String::from_utf8(code).expect("only whole characters were replaced"))
}

/// Returns true if a separate `E` precedes the quote: then a backslash escapes.
fn after_escape_mark(before: &[u8]) -> bool {
    let own = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    match before {
        [.., other, b'e' | b'E'] => own(other),
        [b'e' | b'E'] => true,
        _ => false,
    }
}

/// Returns the length of the quoted text at the start; a doubled quote is part of it.
fn quoted(text: &str, quote: char, escape: Option<char>) -> Option<usize> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if Some(character) == escape {
            characters.next();
        } else if character == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + quote.len_utf8());
        }
    }
    None
}

/// Returns the length of the comment at the start; comments may be nested.
fn comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the length of `$tag$ … $tag$` at the start; 0 if it is something else.
fn dollar_quoted(text: &str) -> Option<usize> {
    let tag = |c: char| c.is_alphanumeric() || c == '_';
    let Some(end) = text[1..].find(|c| !tag(c)).map(|at| at + 1) else { return Some(0) };
    let starts_with_digit = text[1..].starts_with(|c: char| c.is_ascii_digit());
    if !text[end..].starts_with('$') || starts_with_digit {
        return Some(0);
    }
    let mark = &text[..=end];
    text[mark.len()..].find(mark).map(|at| at + 2 * mark.len())
}

fn brackets(code: &str) -> Result<(), String> {
    let mut open = 0_usize;
    for character in code.chars() {
        match character {
            '(' => open += 1,
            ')' => open = open.checked_sub(1).ok_or("a bracket is closed that was not opened")?,
            _ => {}
        }
    }
    if open == 0 { Ok(()) } else { Err("a bracket is not closed".into()) }
}

const HOW: &str = "write the condition exactly as `… IN (:ids)`, once";

/// Returns the place of `IN (:ids)`.
fn place(code: &str) -> Result<std::ops::Range<usize>, String> {
    let mut found = None;
    for (at, name) in parameters(code) {
        if name != "ids" || found.is_some() {
            return Err(format!("`:{name}` has no value here; {HOW}"));
        }
        found = Some(at);
    }
    let at = found.ok_or_else(|| format!("it does not say which rows; {HOW}"))?;
    let word = |text: &str, word: &str| {
        let start = text.len().checked_sub(word.len())?;
        let before = text[..start].chars().next_back();
        let whole = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        (whole && text.get(start..)?.eq_ignore_ascii_case(word)).then_some(start)
    };
    let start =
        code[..at].trim_end().strip_suffix('(').and_then(|open| word(open.trim_end(), "IN"));
    let behind = &code[at + ":ids".len()..];
    let close = behind.trim_start().starts_with(')');
    let (Some(start), true) = (start, close) else { return Err(HOW.into()) };
    if word(code[..start].trim_end(), "NOT").is_some() {
        return Err(format!("NOT IN would read all other rows; {HOW}"));
    }
    let end = code.len() - behind.trim_start().len() + 1;
    Ok(start..end)
}

/// Every `:name` and `$1`, but no `::type`.
fn parameters(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.char_indices().filter_map(|(at, sign)| {
        let name = &code[at + sign.len_utf8()..];
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        let first = name.chars().next()?;
        let is_one = match sign {
            ':' => !code[..at].ends_with(':') && (first.is_alphabetic() || first == '_'),
            '$' => first.is_ascii_digit(),
            _ => false,
        };
        is_one.then_some((at, &name[..end]))
    })
}

/// Which of the ids that were asked for a row belongs to: the same text, or the only one that differs
/// in the case of ASCII letters alone (a UUID has two spellings).
#[derive(Debug)]
pub(crate) struct RequestedIds {
    exact: HashSet<String>,
    folded: HashMap<String, Option<String>>,
}

impl RequestedIds {
    pub(crate) fn new(ids: &[String]) -> Self {
        let mut folded: HashMap<String, Option<String>> = HashMap::new();
        let exact: HashSet<String> = ids.iter().cloned().collect();
        for id in &exact {
            let same = folded.entry(id.to_ascii_lowercase());
            same.and_modify(|only| *only = None).or_insert_with(|| Some(id.clone()));
        }
        Self { exact, folded }
    }

    fn find(&self, id: &str) -> Option<String> {
        if self.exact.contains(id) {
            return Some(id.to_owned());
        }
        self.folded.get(&id.to_ascii_lowercase()).cloned().flatten()
    }
}

/// The longest part of an id in an error text, in characters.
const SHOWN_MAX: usize = 300;

/// Adds records by the id they were asked for. An id with several rows fails, the others do not.
pub(crate) fn by_id(
    asked: &RequestedIds,
    id_column: &str,
    records: Vec<Record>,
    hydrated: &mut HydratedRecords,
) -> Result<(), StoreError> {
    for record in records {
        let id = match record.get(id_column) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => continue,
            None => {
                return Err(StoreError::setup(format!(
                    "hydrate: no column `{id_column}` in the result; select it, or set hydrate_id"
                )));
            }
        };
        let Some(id) = asked.find(&id) else { continue };
        if hydrated.failed.contains_key(&id) {
            continue;
        }
        if hydrated.records.insert(id.clone(), record).is_some() {
            hydrated.records.remove(&id);
            let why = format!("{SEVERAL} {}; correct the rows or the statement", shown(&id));
            hydrated.failed.insert(id, why);
        }
    }
    Ok(())
}

const SEVERAL: &str = "hydrate: several rows for the id";

/// The number of ids that failed, while none worked, from which the statement may be wrong and not the rows.
const SUSPECTS_MIN: usize = 5;

/// An id whose row the statement has read: if it still does, no failure is the statement's.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownGood(Arc<Mutex<Option<String>>>);

impl KnownGood {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether rows or the statement failed, as far as these results show it.
    pub(crate) fn judge(&self, hydrated: HydratedRecords) -> HydrateVerdict {
        if let Some(id) = hydrated.records.keys().next() {
            let mut known = self.lock();
            if known.as_ref().is_none_or(|known| !hydrated.records.contains_key(known)) {
                *known = Some(id.clone());
            }
            return HydrateVerdict::Rows(hydrated);
        }
        if hydrated.failed.len() < SUSPECTS_MIN {
            return HydrateVerdict::Rows(hydrated);
        }
        match self.lock().clone() {
            Some(id) => HydrateVerdict::Probe(id, hydrated),
            None => HydrateVerdict::Statement(wrong_for_all(&hydrated)),
        }
    }
}

/// The cause of ids that failed: their rows, or the statement.
#[derive(Debug)]
pub(crate) enum HydrateVerdict {
    Rows(HydratedRecords),
    Statement(StoreError),
    /// The rows, if this id can still be read.
    Probe(String, HydratedRecords),
}

/// The error of a statement that works for no id.
pub(crate) fn wrong_for_all(hydrated: &HydratedRecords) -> StoreError {
    let why = hydrated.failed.values().next().map_or("hydrate failed", String::as_str);
    StoreError::setup(format!("{why} (the same for every id of the batch)"))
}

fn shown(id: &str) -> String {
    format!("{:?}", id.chars().take(SHOWN_MAX).collect::<String>())
}

/// Finds the ids whose rows make a statement fail, by halving: ranges that are still to be asked for.
///
/// Every id is asked for until it is in a statement that works or fails alone, so there are at most
/// twice as many statements as ids.
#[derive(Debug)]
pub(crate) struct Halving {
    open: Vec<Range<usize>>,
}

impl Halving {
    pub(crate) fn new(ids: usize) -> Self {
        let mut open: Vec<_> =
            (0..ids).step_by(IDS_MAX).map(|start| start..(start + IDS_MAX).min(ids)).collect();
        open.reverse();
        Self { open }
    }

    pub(crate) fn next(&mut self) -> Option<Range<usize>> {
        self.open.pop()
    }

    /// Notes that the statement failed for this range: halves it, or blames its only id.
    pub(crate) fn failed(
        &mut self,
        range: Range<usize>,
        ids: &[String],
        why: &str,
        hydrated: &mut HydratedRecords,
    ) {
        if range.len() > 1 {
            let middle = range.start + range.len() / 2;
            self.open.extend([middle..range.end, range.start..middle]);
            return;
        }
        for id in &ids[range] {
            let id_shown = shown(id);
            let why = format!("hydrate: cannot read the row of the id {id_shown}: {why}");
            hydrated.failed.insert(id.clone(), format!("{why}; correct the row or the statement"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(sql: &str) -> String {
        Template::parse(sql).expect_err(sql)
    }

    #[test]
    fn the_condition_is_replaced_and_nothing_else() {
        for (sql, expected) in [
            ("SELECT * FROM t WHERE id IN (:ids)", "SELECT * FROM t WHERE id <>"),
            ("select 1 where a.id in( :ids )\n  AND x", "select 1 where a.id <>\n  AND x"),
            (
                "WITH x AS (SELECT 1) SELECT ':ids' FROM x WHERE id IN\n(:ids);  ",
                "WITH x AS (SELECT 1) SELECT ':ids' FROM x WHERE id <>",
            ),
            (
                "SELECT a::text, \"x;y\" FROM t -- :ids;\nWHERE id IN (:ids) /* ; /* :x */ */",
                "SELECT a::text, \"x;y\" FROM t -- :ids;\nWHERE id <>",
            ),
            (
                "SELECT $a$ ; $1 $a$, E'it\\'s ;', 'été ''q'';' FROM t WHERE id IN (:ids)",
                "SELECT $a$ ; $1 $a$, E'it\\'s ;', 'été ''q'';' FROM t WHERE id <>",
            ),
        ] {
            assert_eq!(Template::parse(sql).unwrap().with("<>"), expected);
        }
    }

    #[test]
    fn what_is_not_one_reading_statement_is_refused() {
        assert!(refused("SELECT 1; DROP TABLE t").contains("one statement"));
        assert!(refused("DELETE FROM t WHERE id IN (:ids)").contains("SELECT or WITH"));
        assert!(refused("").contains("SELECT or WITH"));
        assert!(refused("SELECT 'a WHERE id IN (:ids)").contains("quotes"));
        assert!(refused("SELECT /* x WHERE id IN (:ids)").contains("quotes"));
        assert!(refused("SELECT 1) FROM (SELECT id IN (:ids)").contains("bracket"));
        assert!(refused("SELECT (1 FROM t WHERE id IN (:ids)").contains("bracket"));
    }

    #[test]
    fn ids_have_exactly_one_place() {
        for sql in [
            "SELECT 1",
            "SELECT 1 WHERE id = :ids",
            "SELECT 1 WHERE id = ANY (:ids)",
            "SELECT 1 WHERE id IN (1, :ids)",
            "SELECT 1 WHERE id IN (:ids, 1)",
            "SELECT 1 WHERE id IN (:ids) OR x IN (:ids)",
            "SELECT 1 WHERE id IN (:ids) AND x = :other",
            "SELECT 1 WHERE id IN (:ids) AND x = $1",
            "SELECT 1 WHERE id NOT IN (:ids)",
            "SELECT 1 WHERE join(:ids)",
            "SELECT ':ids'",
        ] {
            assert!(refused(sql).contains("IN (:ids)"), "{sql}");
        }
    }

    #[test]
    fn rows_are_found_by_their_id_whatever_its_case() {
        let asked =
            RequestedIds::new(&["a".into(), "B".into(), "c".into(), "C".into(), "7".into()]);
        let mut found = HydratedRecords::default();
        let record = |id: Value| json!({ "id": id }).as_object().unwrap().clone();
        let rows = [json!("a"), json!("b"), json!("C"), json!(7), json!("d"), json!(null)];
        by_id(&asked, "id", rows.into_iter().map(record).collect(), &mut found).unwrap();
        let mut ids: Vec<_> = found.records.keys().map(String::as_str).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["7", "B", "C", "a"]);
        let other = by_id(&asked, "key", vec![record(json!("a"))], &mut found);
        assert!(matches!(other, Err(StoreError::Setup(why)) if why.contains("`key`")));
    }

    #[test]
    fn several_rows_for_one_id_fail_that_id_only() {
        let asked = RequestedIds::new(&["a".into(), "b".into()]);
        let record = |id: &str| json!({ "id": id }).as_object().unwrap().clone();
        let mut found = HydratedRecords::default();
        let rows = ["a", "b", "a", "a"].map(record).to_vec();
        by_id(&asked, "id", rows, &mut found).unwrap();
        assert_eq!(found.records.keys().collect::<Vec<_>>(), ["b"]);
        assert!(found.failed["a"].contains("several rows for the id \"a\""), "{found:?}");
    }

    #[test]
    fn the_statement_is_blamed_only_if_nothing_shows_that_it_works() {
        let hydrated = |good: usize, bad: usize| {
            let id = |n: usize| n.to_string();
            let records = (0..good).map(|n| (id(n), Record::default())).collect();
            HydratedRecords {
                records,
                failed: (good..good + bad).map(|n| (id(n), id(n))).collect(),
            }
        };
        let known = KnownGood::default();
        let verdict = |good, bad| known.judge(hydrated(good, bad));
        assert!(matches!(verdict(0, SUSPECTS_MIN - 1), HydrateVerdict::Rows(_)));
        assert!(matches!(
            verdict(0, SUSPECTS_MIN),
            HydrateVerdict::Statement(StoreError::Setup(_))
        ));
        assert!(matches!(verdict(1, 100), HydrateVerdict::Rows(_)));
        assert!(matches!(verdict(0, SUSPECTS_MIN), HydrateVerdict::Probe(id, _) if id == "0"));
    }

    #[test]
    fn halving_asks_for_every_id_and_finds_those_that_fail() {
        for (count, bad) in
            [(1, vec![0]), (3_001, vec![0, 7, 1_000, 3_000]), (5, vec![]), (0, vec![])]
        {
            let ids: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            let (mut halving, mut hydrated) = (Halving::new(count), HydratedRecords::default());
            let (mut good, mut statements) = (0, 0);
            while let Some(range) = halving.next() {
                statements += 1;
                assert!(range.len() <= IDS_MAX);
                if bad.iter().any(|n| range.contains(n)) {
                    halving.failed(range, &ids, "why", &mut hydrated);
                } else {
                    good += range.len();
                }
            }
            assert_eq!((good, hydrated.failed.len()), (count - bad.len(), bad.len()));
            assert!(
                bad.iter().all(|n| hydrated.failed[&n.to_string()].contains(&format!("\"{n}\"")))
            );
            assert!(statements <= 2 * count.max(1) && (bad.len() > 2 || statements < 30));
        }
    }
}
