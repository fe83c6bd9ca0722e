//! Checks of several sections together.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
};

use relais::{
    adopt::{AdoptDestination, Adoption},
    process::CallTarget,
};
use relais_core::process::handler_step::inbox_destination;

use super::{
    ProcessSettings, Settings, SourceOrigin,
    findings::{FilePlace, Severity},
    nearest::nearest,
    reader::SettingsFile,
    store::StoreUrl,
};

/// Reports sections that do not fit together.
pub(super) fn check(file: &SettingsFile<'_>, settings: &Settings) {
    let note = |severity, place: FilePlace, key: &str, message: &str| {
        file.report(severity, place, key, message);
    };
    addresses(settings, note);
    groups(settings, note);
    ignored(settings, note);
    // A destination with an invalid section is not undefined.
    let readable = file.findings.borrow().iter().all(|f| f.severity == Severity::Warning);
    if readable {
        routes(settings, note);
        processes(settings, note);
        handlers(settings, note);
        adoptions(settings, note);
    }
}

fn addresses(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    let mut taken: HashMap<SocketAddr, String> = HashMap::new();
    if let Some(admin) = &settings.admin {
        taken.insert(admin.listen, "[admin]".to_owned());
    }
    for source in &settings.sources {
        let SourceOrigin::Http(http) = &source.origin else { continue };
        let listen = &http.listen;
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

/// Two members of one group share the partitions of a topic. Each source keeps its own positions, so a
/// partition that moves between two of them would be read again from an old position.
fn groups(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    let mut read: HashMap<(&str, &str, &str), &str> = HashMap::new();
    for source in &settings.sources {
        let SourceOrigin::Kafka(kafka) = &source.origin else { continue };
        for topic in &kafka.topics {
            let member = (kafka.brokers.as_str(), kafka.group.as_str(), topic.as_str());
            if let Some(other) = read.insert(member, &source.name) {
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

/// Reports event types that are ignored and used.
fn ignored(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    for event_type in &settings.ignored.event_types {
        let routed = settings.routes.iter().position(|r| r.route.on == *event_type);
        let is_used = |p: &&ProcessSettings| event_types_of(p).contains_key(event_type.as_str());
        let process = settings.processes.iter().find(is_used);
        let handler = settings.handlers.iter().find(|handler| handler.on.contains(event_type));
        let used = match (routed, process, handler) {
            (Some(index), ..) => Some(format!("[[route]] #{}", index + 1)),
            (None, Some(process), _) => {
                Some(format!("[[process]] `{}`", process.declared.process_type))
            }
            (None, None, Some(handler)) => Some(format!("[[handler]] `{}`", handler.name)),
            (None, None, None) => None,
        };
        if let Some(used) = used {
            let message = format!("`{event_type}` is used by {used}; remove it here or there");
            note(Severity::Error, settings.ignored.place, "inbox.ignore", &message);
        }
    }
}

fn routes(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    for (index, route) in settings.routes.iter().enumerate() {
        let destination = &route.route.destination;
        if !settings.defines(destination) {
            let key = format!("route[#{}].destination", index + 1);
            note(Severity::Error, route.place, &key, &undefined(settings, destination));
        }
    }
    let handles = [settings.routes.len(), settings.processes.len(), settings.handlers.len()];
    if handles == [0, 0, 0] {
        for source in &settings.sources {
            let message = "there is no [[route]], [[process]] or [[handler]]: every message of it waits as RECEIVED, \
                 until another program with a handler runs on this database";
            note(Severity::Warning, source.place, &format!("source[{}]", source.name), message);
        }
    }
}

fn adoptions(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    for adopt in &settings.adoptions {
        if let AdoptDestination::Name(destination) = &adopt.adoption.destination
            && !settings.defines(destination)
        {
            let key = format!("adopt[{}].destination", adopt.adoption.table);
            note(Severity::Error, adopt.place, &key, &undefined(settings, destination));
        }
        if let Some(message) = unmarked(settings, &adopt.adoption) {
            let key = format!("adopt[{}].destination", adopt.adoption.table);
            note(Severity::Error, adopt.place, &key, &message);
        }
        if adopt.adoption.is_inbox() {
            for message in shared(settings, &adopt.adoption) {
                let key = format!("adopt[{}]", adopt.adoption.table);
                note(Severity::Error, adopt.place, &key, &message);
            }
        }
    }
}

/// Returns why rows would never be marked: on SQLite only the program that delivers a copy can write its result back.
fn unmarked(settings: &Settings, adoption: &Adoption) -> Option<String> {
    let AdoptDestination::Name(destination) = &adoption.destination else { return None };
    let is_sqlite = matches!(settings.store.url, StoreUrl::Sqlite(_));
    (is_sqlite && settings.external.contains(destination)).then(|| {
        format!(
            "`{destination}` is external: this program would never mark a row; move the [[adopt]] to the \
             configuration of the program that serves it"
        )
    })
}

/// Returns the event types whose result a row of an inbox table cannot show, because several have one.
fn shared(settings: &Settings, adoption: &Adoption) -> Vec<String> {
    let column = adoption.column("event_type");
    let table = plain_name(&adoption.table);
    let handled = settings.handlers.iter().flat_map(|handler| &handler.on);
    let event_types: BTreeSet<&str> = handled.map(String::as_str).collect();
    let may_be = |event_type: &&str| column.is_some() || event_type.eq_ignore_ascii_case(&table);
    let of_type = |event_type: &str| {
        let handlers = settings.handlers.iter().filter(|h| h.on.iter().any(|on| on == event_type));
        let names: Vec<String> = handlers.map(|h| format!("[[handler]] `{}`", h.name)).collect();
        let is_routed = settings.routes.iter().any(|route| route.route.on == event_type);
        let is_of = |p: &ProcessSettings| event_types_of(p).contains_key(event_type);
        let others =
            [(is_routed, "[[route]]"), (settings.processes.iter().any(is_of), "[[process]]")];
        let others = others.iter().filter(|(uses, _)| *uses).map(|(_, name)| (*name).to_owned());
        let users: Vec<String> = names.into_iter().chain(others).collect();
        (users.len() > 1).then(|| {
            format!(
                "`{event_type}` is handled by {}: a row has one result; keep one of them, and let it send messages to the \
                 others",
                users.join(" and ")
            )
        })
    };
    event_types.into_iter().filter(may_be).filter_map(of_type).collect()
}

/// Returns the name of a table without its schema and quotes: the event type of its rows without a column for it.
fn plain_name(table: &str) -> String {
    let last = match table.strip_suffix('"') {
        Some(quoted) => quoted.rsplit_once(".\"").map_or(quoted, |(_, name)| name),
        None => table.rsplit_once('.').map_or(table, |(_, name)| name),
    };
    last.trim().trim_start_matches('"').replace("\"\"", "\"")
}

/// Rows for a destination that no program serves would wait indefinitely.
fn undefined(settings: &Settings, destination: &str) -> String {
    let next = match nearest(destination, settings.destination_names()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "define it, or add one with this name and `external = true` if another program \
                 serves it"
            .to_owned(),
    };
    format!("no [[destination]] is named `{destination}`; {next}")
}

fn no_handler(settings: &Settings, handler: &str) -> String {
    let names = settings.handlers.iter().map(|handler| handler.name.as_str());
    let next = match nearest(handler, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "define it".to_owned(),
    };
    format!("no [[handler]] is named `{handler}`; {next}")
}

/// Reports event types with routes and processes: the two could not share one commit.
fn processes(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    for process in &settings.processes {
        let key = format!("process[{}]", process.declared.process_type);
        let mut missing = BTreeSet::new();
        for (step, call) in process.calls() {
            let (word, is_there, message) = match &call.target {
                CallTarget::Destination(name) => {
                    ("destination", settings.defines(name), undefined(settings, name))
                }
                CallTarget::Handler(name) => {
                    let is_there = settings.handlers.iter().any(|handler| handler.name == *name);
                    ("handler", is_there, no_handler(settings, name))
                }
            };
            if !is_there && missing.insert((step, call.target.name())) {
                let key = format!("{key}.step[{step}].{word}");
                note(Severity::Error, process.place, &key, &message);
            }
        }
        for (event_type, role) in event_types_of(process) {
            if let Some(route) = settings.routes.iter().position(|r| r.route.on == event_type) {
                let message = format!(
                    "`{event_type}` {role}, and [[route]] #{} is for it too; an event type has \
                     either routes or processes",
                    route + 1
                );
                note(Severity::Error, process.place, &key, &message);
            }
        }
    }
}

/// Reports handlers that may send to an unknown destination, or whose name is taken by one.
fn handlers(settings: &Settings, note: impl Fn(Severity, FilePlace, &str, &str)) {
    for handler in &settings.handlers {
        let key = |key: &str| format!("handler[{}].{key}", handler.name);
        for destination in &handler.destinations {
            if !settings.defines(destination) {
                let message = undefined(settings, destination);
                note(Severity::Error, handler.place, &key("destinations"), &message);
            }
        }
        let is_step = |process: &ProcessSettings| {
            process
                .calls()
                .any(|(_, call)| call.target == CallTarget::Handler(handler.name.clone()))
        };
        let has_steps = settings.processes.iter().any(is_step);
        if handler.on.is_empty() && !has_steps {
            let message = "is missing, and no step of a process names this handler; name one event type, or a \
                           list of them";
            note(Severity::Error, handler.place, &key("on"), message);
        }
        let inbox = inbox_destination(&settings.inbox_name);
        if has_steps && settings.defines(&inbox) {
            let message = format!(
                "a [[destination]] is named `{inbox}`, which stands for the inbox of the handler's answers; \
                 rename it"
            );
            note(Severity::Error, handler.place, &key("name"), &message);
        }
        if settings.defines(&handler.target()) {
            let message = format!(
                "a [[destination]] is named `{}`, which stands for this handler; rename one of the two",
                handler.target()
            );
            note(Severity::Error, handler.place, &key("name"), &message);
        }
    }
}

/// Returns every event type of a process once, with its role.
fn event_types_of(process: &ProcessSettings) -> BTreeMap<&str, String> {
    let replies = process.calls().flat_map(|(step, call)| {
        let types = call.completed.iter().chain(&call.failed).chain(&call.retryable);
        types.map(move |name| (name.as_str(), format!("is a reply to step `{step}`")))
    });
    let starts = process.declared.starts.iter();
    replies.chain(starts.map(|name| (name.as_str(), "starts it".to_owned()))).collect()
}
