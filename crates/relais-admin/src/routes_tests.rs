//! Checks that every path the router serves is in the table of routes or in the short list here.

use std::{collections::BTreeSet, fs, path::Path};

/// Paths outside the table, with their protection.
const OUTSIDE: [&str; 8] = [
    "/",                 // a file of the console: no data
    "/api/openapi.json", // by `identify`
    "/console/{name}",   // a file of the console: no data
    "/healthz",          // liveness: no data
    "/login",            // by the throttle
    "/logout",           // changes nothing here
    "/metrics",          // by `identify`
    "/readyz",           // readiness and its causes: no data of messages
];

/// Finds new routes in any file of the crate.
#[test]
fn only_known_paths_are_served_outside_the_table() {
    let mut served = BTreeSet::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if path.ends_with("routes_tests.rs") {
            continue;
        }
        for (call, words) in [("route", ".route(\""), ("service", "_service(\"")] {
            let found = text.split(words).skip(1).filter_map(|rest| rest.split('"').next());
            served.extend(found.map(|path| (call, path.to_owned())));
        }
    }
    let known = OUTSIDE.iter().map(|path| ("route", (*path).to_owned())).collect();
    assert_eq!(served, known);
}
