//! Typical mistakes do not compile, and what the compiler prints names the cure. The right forms are compiled
//! and run in `crates/relais/tests/handlers`.
//!
//! `TRYBUILD=overwrite cargo test --test mistakes` updates the texts after a change.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::{fs, path::Path};

#[test]
fn each_mistake_is_answered_with_its_cure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    assert!(files.len() >= 12, "only {} mistakes", files.len());
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/mistakes/*.rs");
    drop(cases);
    for file in files {
        let code = fs::read_to_string(&file).unwrap();
        let cure = code.lines().next().unwrap().strip_prefix("//! cure: ").unwrap();
        let printed = fs::read_to_string(file.with_extension("stderr")).unwrap();
        // The compiler breaks long lines.
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(printed.contains(cure), "{}: no `{cure}` in {printed}", file.display());
    }
}
