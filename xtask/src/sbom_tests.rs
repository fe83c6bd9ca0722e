//! That the list is complete, and that each entry says what is needed to look something up.

use super::*;
use crate::workspace::compiled;

fn id(name: &str, version: &str) -> Id {
    (name.to_owned(), version.to_owned())
}

#[test]
fn the_list_has_everything_that_is_compiled_into_the_program_and_nothing_else() {
    let document = document(&Workspace::load().unwrap()).unwrap();
    let program = &document["metadata"]["component"];
    let components = document["components"].as_array().unwrap();
    let text = |component: &Value, key: &str| component[key].as_str().unwrap().to_owned();
    let listed: BTreeSet<Id> = components
        .iter()
        .chain([program])
        .filter(|component| text(component, "purl").starts_with("pkg:cargo/"))
        .map(|component| (text(component, "name"), text(component, "version")))
        .collect();
    assert_eq!(listed, compiled(&PROGRAM).unwrap());
    assert!(listed.len() > 100, "{}", listed.len());
    assert_eq!((&program["name"], &program["type"]), (&json!("relais-cli"), &json!("application")));
    assert!(components.iter().any(|component| component["name"] == "sqlite"));
}

#[test]
fn each_entry_has_what_is_needed_to_look_it_up() {
    let workspace = Workspace::load().unwrap();
    let document = document(&workspace).unwrap();
    assert_eq!(
        (&document["bomFormat"], &document["specVersion"]),
        (&json!("CycloneDX"), &json!("1.6"))
    );
    let components = document["components"].as_array().unwrap();
    let mut references: BTreeSet<&str> = BTreeSet::new();
    for component in components.iter().chain([&document["metadata"]["component"]]) {
        let name = component["name"].as_str().unwrap();
        let licence = &component["licenses"][0];
        let licence = licence["expression"].as_str().or(licence["license"]["id"].as_str());
        assert!(licence.is_some_and(|text| !text.is_empty()), "{component}");
        assert!(!component["version"].as_str().unwrap().is_empty(), "{component}");
        assert!(references.insert(component["bom-ref"].as_str().unwrap()), "{name} comes twice");
        assert_eq!(component["purl"], component["bom-ref"]);
        let foreign = workspace.packages.iter().any(|p| p.name == name && p.registry.is_some());
        let hash = component["hashes"][0]["content"].as_str().unwrap_or_default();
        assert_eq!(hash.len(), if foreign { 64 } else { 0 }, "{component}");
    }
    for entry in document["dependencies"].as_array().unwrap() {
        let needs = entry["dependsOn"].as_array().unwrap();
        for reference in needs.iter().chain([&entry["ref"]]) {
            assert!(references.contains(reference.as_str().unwrap()), "{reference}");
        }
    }
}

#[test]
fn a_tree_becomes_who_needs_whom() {
    let tree = "0 a v1.0.0 (/x)\n1 b v2.0.0\n2 c v3.0.0\n1 c v3.0.0\n1 d v4.0.0 (proc-macro)\n\n";
    let graph = graph(tree);
    assert_eq!(graph[&id("a", "1.0.0")].len(), 3);
    assert_eq!(graph[&id("b", "2.0.0")], BTreeSet::from([id("c", "3.0.0")]));
    assert_eq!(graph.len(), 4);
}

#[test]
fn checksums_come_from_the_lock_file() {
    let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
    assert_eq!(checksums(lock), BTreeMap::from([(id("a", "1.0.0"), "ff".to_owned())]));
    assert_eq!(purl(&id("a", "1.0.0+x")), "pkg:cargo/a@1.0.0%2Bx");
}
