//! The licence texts of every library that is compiled into the program, in one file.
//!
//! Most licences ask that their text and copyright notice go with each copy. Libraries with the same text
//! share one part of the file.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

use super::{FEATURES, PACKAGE};
use crate::workspace::{Package, Workspace, compiled};

/// The name of the file in each package.
pub(super) const NAME: &str = "THIRD-PARTY-LICENSES";
/// First words of the names of such files, in any case.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Source code that has such a name.
const CODE: [&str; 4] = ["rs", "py", "go", "c"];
const LINE: &str =
    "================================================================================";

/// Writes the file and returns its place.
pub(super) fn write(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    let arguments = ["-p", PACKAGE, "--features", FEATURES, "--edges", "normal"];
    let compiled = compiled(&arguments)?;
    let foreign = workspace.packages.iter().filter(|package| package.registry.is_some());
    let mut foreign: Vec<&Package> =
        foreign.filter(|one| compiled.contains(&(one.name.clone(), one.version.clone()))).collect();
    foreign.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    ensure!(!foreign.is_empty(), "cargo names no library that is compiled into the program");
    let file = folder.join(NAME);
    fs::write(&file, text(&foreign)?)?;
    Ok(file)
}

fn text(packages: &[&Package]) -> Result<String> {
    let mut out =
        String::from("relais contains these libraries, under the licences they name:\n\n");
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for package in packages {
        let title = format!("{} {}", package.name, package.version);
        let texts = texts(&package.folder)?;
        let licence = match package.license.as_str() {
            "" => "as its text says",
            named => named,
        };
        ensure!(
            !(texts.is_empty() && package.license.is_empty()),
            "{title} has neither a licence nor its text"
        );
        writeln!(out, "{title}: {licence}")?;
        if texts.is_empty() {
            without.push(title);
            continue;
        }
        for text in texts {
            parts.entry(text).or_default().push(title.clone());
        }
    }
    if !without.is_empty() {
        let names = without.join(", ");
        writeln!(out, "\nPublished without a text of their licence: {names}")?;
    }
    // By the libraries, not by the text: an update moves little.
    let mut parts: Vec<(Vec<String>, String)> =
        parts.into_iter().map(|(text, names)| (names, text)).collect();
    parts.sort();
    for (mut names, text) in parts {
        names.dedup();
        write!(out, "\n{LINE}\n{}\n{LINE}\n\n{}\n", names.join(", "), text.trim_end())?;
    }
    Ok(out)
}

/// The licence texts in a folder and in those below it: some libraries contain others.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(folder, 2, &mut files)?;
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let text = String::from_utf8_lossy(&fs::read(file)?).replace("\r\n", "\n");
        if !text.trim().is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    Ok(texts)
}

fn collect(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, files)?;
            }
        } else if is_licence(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let is_code = path.extension().is_some_and(|ending| CODE.iter().any(|code| ending == *code));
    !is_code && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn package(scratch: &Scratch, name: &str, license: &str, files: &[(&str, &str)]) -> Package {
        let folder = scratch.path().join(name);
        for (file, text) in files {
            let place = folder.join(file);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.to_owned(),
            folder,
            features: Vec::new(),
            published: false,
            registry: Some("registry".to_owned()),
        }
    }

    #[test]
    fn equal_texts_are_written_once_and_texts_of_contained_libraries_are_found() {
        let scratch = Scratch::new().unwrap();
        let packages = [
            package(
                &scratch,
                "a",
                "MIT",
                &[("LICENSE-MIT", "shared text\r\n"), ("license.rs", "code")],
            ),
            package(
                &scratch,
                "b",
                "MIT",
                &[("license", "shared text\n"), ("libz/COPYING.txt", "of libz")],
            ),
            package(&scratch, "c", "Apache-2.0", &[]),
        ];
        let text = text(&packages.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(text.matches("shared text").count(), 1, "{text}");
        assert!(text.contains("\na 1.0.0, b 1.0.0\n"), "{text}");
        assert!(text.contains("\nb 1.0.0\n") && text.contains("of libz"), "{text}");
        assert!(text.contains("a text of their licence: c 1.0.0\n"), "{text}");
        assert!(!text.contains("code"), "{text}");
    }

    #[test]
    fn a_library_without_any_licence_is_refused() {
        let scratch = Scratch::new().unwrap();
        let nameless = package(&scratch, "a", "", &[]);
        let error = text(&[&nameless]).unwrap_err();
        assert!(error.to_string().contains("a 1.0.0"), "{error}");
    }
}
