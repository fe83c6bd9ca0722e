//! Every fuzz target that is a library's, in one program: `RELAIS_FUZZ_TARGET` names it.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use relais_connect::{http, salesforce};
use relais_core::fuzz as core;

const TARGETS: [(&str, fn(&[u8])); 7] = [
    ("record", core::record),
    ("envelope", core::envelope),
    ("template", core::template),
    ("arithmetic", core::arithmetic),
    ("bulk_csv", salesforce::fuzz::bulk_csv),
    ("bulk_results", salesforce::fuzz::bulk_results),
    ("http_headers", http::fuzz::http_headers),
];

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("RELAIS_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    let names = TARGETS.map(|(name, _)| name).join(", ");
    found.unwrap_or_else(|| panic!("set RELAIS_FUZZ_TARGET to one of: {names}")).1
});

fuzz_target!(|input: &[u8]| TARGET(input));
