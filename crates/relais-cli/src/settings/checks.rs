//! What only shows when several sections are looked at together.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    findings::{Place, Severity},
    reader::Reader,
    types::{HttpOrigin, KafkaOrigin, Origin, Settings},
};

/// Notes what does not fit together.
pub(super) fn check(reader: &Reader<'_>, settings: &Settings) {
    let note = |severity, place: Place, key: &str, message: &str| {
        reader.note(severity, place, key, message);
    };
    addresses(settings, note);
    groups(settings, note);
    // A destination that could not be read is not an undefined one.
    let readable = reader.findings.borrow().iter().all(|f| f.severity == Severity::Warning);
    if readable {
        routes(settings, note);
    }
}

fn addresses(settings: &Settings, note: impl Fn(Severity, Place, &str, &str)) {
    let mut taken: HashMap<SocketAddr, String> = HashMap::new();
    if let Some(admin) = &settings.admin {
        taken.insert(admin.listen, "[admin]".to_owned());
    }
    for source in &settings.sources {
        let Origin::Http(HttpOrigin { listen, .. }) = &source.origin else { continue };
        if listen.port() == 0 {
            continue;
        }
        let me = format!("source `{}`", source.name);
        if let Some(other) = taken.insert(*listen, me) {
            let message = format!("{listen} is taken by {other}; give each its own address");
            let key = format!("source[{}].listen", source.name);
            note(Severity::Error, source.place, &key, &message);
        }
    }
}

/// Two members of one group share out the partitions of a topic. Each source keeps its own positions,
/// so a partition that went back and forth between two of them would be read again from far back.
fn groups(settings: &Settings, note: impl Fn(Severity, Place, &str, &str)) {
    let mut read: HashMap<(&str, &str, &str), &str> = HashMap::new();
    for source in &settings.sources {
        let Origin::Kafka(KafkaOrigin { brokers, group, topics, .. }) = &source.origin else {
            continue;
        };
        for topic in topics {
            if let Some(other) = read.insert((brokers, group, topic), &source.name) {
                let message = format!(
                    "source `{other}` reads the same topic in the same group; give this one \
                     another group, or put both into one source"
                );
                let key = format!("source[{}].group", source.name);
                note(Severity::Error, source.place, &key, &message);
            }
        }
    }
}

fn routes(settings: &Settings, note: impl Fn(Severity, Place, &str, &str)) {
    for (index, route) in settings.routes.iter().enumerate() {
        let destination = &route.route.destination;
        if !settings.defines(destination) {
            let message =
                format!("no [[destination]] is named `{destination}`; its rows wait until one is");
            let key = format!("route[#{}].destination", index + 1);
            note(Severity::Warning, route.place, &key, &message);
        }
    }
    if settings.routes.is_empty() {
        for source in &settings.sources {
            let message = "there is no [[route]]: every message of it will be FAILED";
            note(Severity::Warning, source.place, &format!("source[{}]", source.name), message);
        }
    }
}
