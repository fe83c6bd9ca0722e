//! An adopted table as the configuration describes it: which of its columns has which meaning.
//!
//! Everything here is a description; nothing reads the database.

use relais_core::setting::SettingWords;

/// A known layout of an outbox table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptPreset {
    /// `outbox(id, aggregate_type, aggregate_id, event_type, payload, status, created_at, sent_at,
    /// error_message)`, states `NEW`, `SENT`, `FAILED`.
    OrderService,
    /// `outbox_messages(id, type, content, created_at, processed_at, error, retry_count)` beside
    /// `outbox_dead_letters`.
    EfCore,
    /// `outbox(id, category, topic, key, type, payload, headers, status, attempts, next_at, claimed_by,
    /// created_at, published_at, last_error)`, states `NEW`, `PUBLISHED`, `FAILED`.
    Jdbc,
    /// `outbox_min(id, destination, payload, status, next_attempt_at, attempts)`, states `PENDING`,
    /// `DISPATCHED`, `FAILED`.
    Minimal,
    /// `inbox_min(id, message_id, source_system, payload, raw_payload_base64, status, next_attempt_at, attempts)`,
    /// states `RECEIVED`, `RETRY`, `PROCESSED`, `FAILED`. Its rows are received messages: they go to the inbox.
    MinimalInbox,
    /// `outboxevent(id, aggregatetype, aggregateid, type, payload)`: rows may be deleted at once.
    Debezium,
    /// Every column is named in the configuration.
    Custom,
}

impl SettingWords for AdoptPreset {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("order-service", Self::OrderService),
        ("ef-core", Self::EfCore),
        ("jdbc", Self::Jdbc),
        ("minimal", Self::Minimal),
        ("minimal-inbox", Self::MinimalInbox),
        ("debezium", Self::Debezium),
        ("custom", Self::Custom),
    ];
}

impl AdoptPreset {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }

    fn columns(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::OrderService => &[
                ("id", "id"),
                ("aggregate_type", "aggregate_type"),
                ("aggregate_id", "aggregate_id"),
                ("event_type", "event_type"),
                ("payload", "payload"),
                ("status", "status"),
                ("created_at", "created_at"),
                ("sent_at", "sent_at"),
                ("error", "error_message"),
            ],
            Self::EfCore => &[
                ("id", "id"),
                ("event_type", "type"),
                ("payload", "content"),
                ("created_at", "created_at"),
                ("sent_at", "processed_at"),
                ("error", "error"),
                ("attempts", "retry_count"),
            ],
            Self::Jdbc => &[
                ("id", "id"),
                ("category", "category"),
                ("aggregate_type", "topic"),
                ("key", "key"),
                ("event_type", "type"),
                ("payload", "payload"),
                ("headers", "headers"),
                ("status", "status"),
                ("attempts", "attempts"),
                ("next_attempt_at", "next_at"),
                ("created_at", "created_at"),
                ("sent_at", "published_at"),
                ("error", "last_error"),
            ],
            Self::Minimal => &[
                ("id", "id"),
                ("payload", "payload"),
                ("status", "status"),
                ("next_attempt_at", "next_attempt_at"),
                ("attempts", "attempts"),
            ],
            Self::MinimalInbox => &[
                ("id", "id"),
                ("message_id", "message_id"),
                ("source", "source_system"),
                ("payload", "payload"),
                ("raw_payload", "raw_payload_base64"),
                ("status", "status"),
                ("next_attempt_at", "next_attempt_at"),
                ("attempts", "attempts"),
            ],
            Self::Debezium => &[
                ("id", "id"),
                ("aggregate_type", "aggregatetype"),
                ("aggregate_id", "aggregateid"),
                ("event_type", "type"),
                ("payload", "payload"),
            ],
            Self::Custom => &[],
        }
    }

    fn states(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::OrderService => &[("new", "NEW"), ("sent", "SENT"), ("failed", "FAILED")],
            Self::Jdbc => &[("new", "NEW"), ("sent", "PUBLISHED"), ("failed", "FAILED")],
            Self::Minimal => &[("new", "PENDING"), ("sent", "DISPATCHED"), ("failed", "FAILED")],
            Self::MinimalInbox => &[
                ("new", "RECEIVED"),
                ("sent", "PROCESSED"),
                ("failed", "FAILED"),
                ("retry", "RETRY"),
            ],
            Self::EfCore | Self::Debezium | Self::Custom => &[],
        }
    }
}

/// The meanings that a column may have: the keys of `columns`.
pub const ADOPT_COLUMNS: [&str; 17] = [
    "id",
    "message_id",
    "source",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "payload",
    "raw_payload",
    "headers",
    "key",
    "category",
    "created_at",
    "status",
    "sent_at",
    "attempts",
    "next_attempt_at",
    "error",
];

/// The columns that only an inbox table has, and those that only an outbox table has.
const OF_INBOX: [&str; 3] = ["message_id", "source", "raw_payload"];
const OF_OUTBOX: [&str; 2] = ["aggregate_type", "category"];

/// The states that a status column may have: the keys of `states`. Without a word for `retry`, a row that waits for
/// another attempt has that of `new`.
pub const ADOPT_STATES: [&str; 4] = ["new", "sent", "failed", "retry"];
/// The states that a table with a status column needs.
const NEEDED_STATES: [&str; 3] = ["new", "sent", "failed"];

/// The destination of the copied rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptDestination {
    /// The rows are received messages: they are copied into the inbox of this name, which may be empty.
    Inbox(String),
    /// All rows have this one.
    Name(String),
    /// A column of the table names it.
    Column(String),
}

/// One adopted table: an outbox or inbox table of the application, in the database of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adoption {
    /// The table as in SQL, with or without its schema.
    pub table: String,
    /// The layout that `columns` and `states` change.
    pub preset: AdoptPreset,
    /// The destination of its rows.
    pub destination: AdoptDestination,
    /// Columns by their meaning ([`ADOPT_COLUMNS`]); an empty name: the table has none.
    pub columns: Vec<(String, String)>,
    /// Words of the status column by their meaning ([`ADOPT_STATES`]).
    pub states: Vec<(String, String)>,
    /// Rows that exist when the triggers are created are copied too.
    pub existing: bool,
    /// The table that gets dead letters; for the preset `ef-core`.
    pub dead_letters: Option<String>,
}

impl Adoption {
    /// Returns the description of a table with the columns of the preset.
    pub fn new(table: &str, preset: AdoptPreset, destination: AdoptDestination) -> Self {
        let (columns, states) = Default::default();
        let table = table.to_owned();
        Self { table, preset, destination, columns, states, existing: false, dead_letters: None }
    }

    /// Returns the column of a meaning, if the table has one.
    pub fn column(&self, meaning: &str) -> Option<&str> {
        find(&self.columns, meaning, self.preset.columns()).filter(|name| !name.is_empty())
    }

    /// Returns the word of a state.
    pub fn state(&self, meaning: &str) -> Option<&str> {
        find(&self.states, meaning, self.preset.states()).filter(|word| !word.is_empty())
    }

    /// Returns whether its rows are received messages.
    pub fn is_inbox(&self) -> bool {
        matches!(self.destination, AdoptDestination::Inbox(_))
    }

    /// Returns the column that has the destination of each row, if there is one.
    pub(crate) fn destination_column(&self) -> Option<&str> {
        match &self.destination {
            AdoptDestination::Column(column) => Some(column),
            AdoptDestination::Name(_) | AdoptDestination::Inbox(_) => None,
        }
    }

    /// Returns whether its rows may have this destination.
    pub fn may_have(&self, destination: &str) -> bool {
        match &self.destination {
            AdoptDestination::Inbox(_) => false,
            AdoptDestination::Name(name) => name == destination,
            AdoptDestination::Column(_) => true,
        }
    }

    /// Returns what is wrong with the description itself: the key, and the reason.
    pub fn refusals(&self) -> Vec<(&'static str, String)> {
        let mut refusals = Vec::new();
        let mut unknown = |key, given: &[(String, String)], known: &[&str]| {
            for (name, _) in given.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
                refusals.push((key, format!("`{name}` is not known; one of {}", known.join(", "))));
            }
        };
        unknown("columns", &self.columns, &ADOPT_COLUMNS);
        unknown("states", &self.states, &ADOPT_STATES);
        for needed in ["id", "payload"] {
            if self.column(needed).is_none() {
                refusals.push(("columns", format!("needs a column for `{needed}`")));
            }
        }
        if self.column("status").is_some() {
            for needed in NEEDED_STATES.iter().filter(|state| self.state(state).is_none()) {
                let why = format!("needs a word for `{needed}`, because there is a status column");
                refusals.push(("states", why));
            }
            let ends = [self.state("sent"), self.state("failed")];
            let open = [self.state("new"), self.state("retry")];
            if open.iter().flatten().any(|word| ends.contains(&Some(word))) {
                let why = "`new` and `retry` must differ from `sent` and `failed`".to_owned();
                refusals.push(("states", why));
            }
        } else if !self.states.is_empty() {
            refusals.push(("states", "needs a column for `status`".to_owned()));
        }
        if self.dead_letters.is_some() && self.preset != AdoptPreset::EfCore {
            refusals.push(("dead_letters", "is for the preset `ef-core`".to_owned()));
        }
        let others: &[&str] = if self.is_inbox() { &OF_OUTBOX } else { &OF_INBOX };
        for (name, _) in self.columns.iter().filter(|(name, _)| others.contains(&name.as_str())) {
            let kind = if self.is_inbox() { "an outbox" } else { "an inbox" };
            refusals.push(("columns", format!("`{name}` is a column of {kind} table")));
        }
        let mut names = self.columns.iter().chain(&self.states).map(|(_, value)| value.as_str());
        let destination = match &self.destination {
            AdoptDestination::Name(name)
            | AdoptDestination::Column(name)
            | AdoptDestination::Inbox(name) => name.as_str(),
        };
        // They are put into the text of functions.
        let is_odd = |text: &str| text.chars().any(char::is_control) || text.contains("$relais$");
        if names.any(is_odd) || is_odd(destination) || is_odd(&self.table) {
            refusals.push(("", "a name has a control character or `$relais$` in it".to_owned()));
        }
        refusals
    }
}

fn find<'a>(
    given: &'a [(String, String)],
    name: &str,
    preset: &'static [(&'static str, &'static str)],
) -> Option<&'a str> {
    let given = given.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    given.or_else(|| preset.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(columns: &[(&str, &str)], states: &[(&str, &str)]) -> Vec<String> {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let to = AdoptDestination::Name("orders".to_owned());
        let mut adoption = Adoption::new("outbox", AdoptPreset::Custom, to);
        (adoption.columns, adoption.states) = (owned(columns), owned(states));
        adoption.refusals().into_iter().map(|(key, why)| format!("{key}: {why}")).collect()
    }

    #[test]
    fn every_preset_is_complete_by_itself() {
        for (name, preset) in AdoptPreset::WORDS {
            let to = AdoptDestination::Name("orders".to_owned());
            let refusals = Adoption::new("outbox", *preset, to).refusals();
            assert_eq!(refusals.is_empty(), *name != "custom", "{name}: {refusals:?}");
        }
    }

    #[test]
    fn a_description_that_cannot_work_is_refused_with_its_key() {
        let both = [("id", "id"), ("payload", "body")];
        assert_eq!(custom(&both, &[]), [""; 0]);
        assert_eq!(custom(&both[..1], &[]), ["columns: needs a column for `payload`"]);
        let status = [both[0], both[1], ("status", "state")];
        assert_eq!(custom(&status, &[("new", "N"), ("sent", "S"), ("failed", "F")]), [""; 0]);
        let equal = custom(&status, &[("new", "N"), ("sent", "N"), ("failed", "F")]);
        assert_eq!(equal, ["states: `new` and `retry` must differ from `sent` and `failed`"]);
        assert_eq!(custom(&status, &[]).len(), 3);
        let unknown = custom(&[both[0], both[1], ("state", "x")], &[]);
        assert!(unknown[0].starts_with("columns: `state` is not known; one of id,"), "{unknown:?}");
        assert_eq!(custom(&[("id", "id"), ("payload", "a\nb")], &[]).len(), 1);
    }

    #[test]
    fn a_column_of_a_preset_can_be_renamed_and_left_out() {
        let to = AdoptDestination::Column("topic".to_owned());
        let mut adoption = Adoption::new("outbox", AdoptPreset::Jdbc, to);
        let columns = [("error", ""), ("sent_at", "done")];
        adoption.columns = columns.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!((adoption.column("error"), adoption.column("sent_at")), (None, Some("done")));
        assert_eq!(adoption.state("sent"), Some("PUBLISHED"));
    }
}
