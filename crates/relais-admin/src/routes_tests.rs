//! Whatever the router serves is in the table of routes or on the short list here.

use std::{collections::BTreeSet, fs, path::Path};

/// Outside the table, with what guards it.
const OUTSIDE: [&str; 8] = [
    "/",                 // a file of the console: no data
    "/api/openapi.json", // by `identify`
    "/console/{name}",   // a file of the console: no data
    "/healthz",          // that the process lives: no data
    "/login",            // by the throttle
    "/logout",           // changes nothing here
    "/metrics",          // by `identify`
    "/readyz",           // whether it can work, and why not
];

/// A new way in, wherever it is written, must be noticed here.
#[test]
fn nothing_is_served_beside_the_table_but_what_is_known_here() {
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
