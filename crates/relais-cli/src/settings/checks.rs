//! What only shows when several sections are looked at together.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    findings::{Place, Severity},
    reader::Reader,
    types::Settings,
};

/// Notes what does not fit together.
pub(super) fn check(reader: &Reader<'_>, settings: &Settings) {
    let note = |severity, place: Place, key: &str, message: &str| {
        reader.note(severity, place, key, message);
    };
    addresses(settings, note);
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
    for source in settings.sources.iter().filter(|source| source.listen.port() != 0) {
        let me = format!("source `{}`", source.name);
        if let Some(other) = taken.insert(source.listen, me) {
            let message =
                format!("{} is taken by {other}; give each its own address", source.listen);
            note(
                Severity::Error,
                source.place,
                &format!("source[{}].listen", source.name),
                &message,
            );
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
