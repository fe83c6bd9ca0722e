//! `[[adopt]]`: tables of applications.

use relais::adopt::{AdoptDestination, AdoptPreset, Adoption};
use relais_core::{
    setting::{NameText, OnOff, TextTable, Word},
    settings,
};

use super::{findings::FilePlace, reader::Section};

settings! {
    /// `[[adopt]]`
    pub(super) struct AdoptKeys {
        /// an existing table of the database, as in SQL, with or without its schema: [adopt.md](adopt.md)
        table: NameText;
        /// the layout of the table: `"order-service"`, `"ef-core"`, `"jdbc"`, `"minimal"`, `"debezium"` or `"custom"`; `"minimal-inbox"` is an inbox table
        preset: Word<AdoptPreset>;
        /// the name of a `[[destination]]`, or `column:NAME`: a column of the table has the name
        destination: Option<NameText> => "needed; an inbox table has none";
        /// columns by their meaning, where they differ from the preset; an empty name means that the table has none
        columns: TextTable => "those of the preset";
        /// words of the status column for `new`, `sent`, `failed` and, if it has one, `retry`
        states: TextTable => "those of the preset";
        /// the installation also copies rows that are waiting in the table
        existing: OnOff = false;
        /// the table that gets dead letters; for the preset `ef-core`
        dead_letters: Option<NameText> => "`outbox_dead_letters` in the schema of the table";
    }
}

/// One `[[adopt]]`.
#[derive(Debug)]
pub(crate) struct AdoptSettings {
    /// The place of its destination.
    pub(crate) place: FilePlace,
    pub(crate) adoption: Adoption,
}

/// Reads every adoption that can be read.
pub(super) fn adoptions(sections: Vec<Section<'_>>, inbox: &str) -> Vec<AdoptSettings> {
    let mut all: Vec<AdoptSettings> = Vec::new();
    for section in sections {
        if let Some(keys) = section.read::<AdoptKeys>() {
            match (keys.preset, &keys.destination) {
                (AdoptPreset::MinimalInbox, Some(_)) => {
                    section.error(
                        "destination",
                        "must not be set: rows of an inbox table are received messages",
                    );
                }
                (AdoptPreset::MinimalInbox, None) | (_, Some(_)) => {}
                (_, None) => section.error("destination", "is missing"),
            }
            let adoption = adoption(keys, inbox);
            for (key, why) in adoption.refusals() {
                section.error(key, why);
            }
            if adoption.destination == AdoptDestination::Column(String::new()) {
                section.error("destination", "names no column; write `column:NAME`");
            }
            if all.iter().any(|other| other.adoption.table == adoption.table) {
                section.error("table", "is adopted twice; remove one of the two");
            }
            all.push(AdoptSettings { place: section.place_of("destination"), adoption });
        }
        section.finish();
    }
    all
}

fn adoption(keys: AdoptKeys, inbox: &str) -> Adoption {
    let destination = keys.destination.unwrap_or_default();
    let destination = match (keys.preset, destination.strip_prefix("column:")) {
        (AdoptPreset::MinimalInbox, _) => AdoptDestination::Inbox(inbox.to_owned()),
        (_, Some(column)) => AdoptDestination::Column(column.trim().to_owned()),
        (_, None) => AdoptDestination::Name(destination),
    };
    let mut adoption = Adoption::new(&keys.table, keys.preset, destination);
    adoption.columns = keys.columns;
    adoption.states = keys.states;
    adoption.existing = keys.existing;
    adoption.dead_letters = keys.dead_letters;
    adoption
}
