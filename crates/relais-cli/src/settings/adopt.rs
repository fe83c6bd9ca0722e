//! `[[adopt]]`: outbox tables of applications.

use relais::postgres::{AdoptDestination, AdoptPreset, Adoption};
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
        /// the layout of the table: `"order-service"`, `"ef-core"`, `"jdbc"`, `"minimal"`, `"debezium"` or `"custom"`
        preset: Word<AdoptPreset>;
        /// the name of a `[[destination]]`, or `column:NAME`: a column of the table has the name
        destination: NameText;
        /// columns by their meaning, where they differ from the preset; an empty name means that the table has none
        columns: TextTable => "those of the preset";
        /// words of the status column for `new`, `sent` and `failed`
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
pub(super) fn adoptions(sections: Vec<Section<'_>>) -> Vec<AdoptSettings> {
    let mut all: Vec<AdoptSettings> = Vec::new();
    for section in sections {
        if let Some(adoption) = section.read::<AdoptKeys>().map(adoption) {
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

fn adoption(keys: AdoptKeys) -> Adoption {
    let destination = match keys.destination.strip_prefix("column:") {
        Some(column) => AdoptDestination::Column(column.trim().to_owned()),
        None => AdoptDestination::Name(keys.destination),
    };
    let mut adoption = Adoption::new(&keys.table, keys.preset, destination);
    adoption.columns = keys.columns;
    adoption.states = keys.states;
    adoption.existing = keys.existing;
    adoption.dead_letters = keys.dead_letters;
    adoption
}
