//! Rules for dependencies: one SQLite, a sound one, which packages may not depend on which, and OpenSSL for Kafka
//! alone.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{TidyFinding, tree::Tree};
use crate::workspace::compiled;

/// Two of these in one program do not link, or disagree about one database file.
const SINGLE: [&str; 2] = ["rusqlite", "libsqlite3-sys"];

/// The first binding whose bundled SQLite (3.51.3) cannot corrupt a WAL database when it is reset.
const SQLITE_BINDING_MIN: [u64; 2] = [0, 37];

/// Packages that must not be compiled for some arguments of `cargo tree`.
struct Boundary {
    args: &'static [&'static str],
    absent: &'static [&'static str],
    why: &'static str,
}

/// The one package that may use OpenSSL: librdkafka speaks TLS through nothing else.
const OPENSSL_USER: &str = "rdkafka-sys";

/// The promises about dependencies that features and packages make.
const BOUNDARIES: &[Boundary] = &[
    Boundary {
        args: &["--workspace", "--all-features", "--target", "all"],
        absent: &["ring", "native-tls"],
        why: "one cryptography provider: rustls with aws-lc-rs",
    },
    Boundary {
        args: &["-p", "relais-cli", "--edges", "normal"],
        absent: &["rdkafka", "openssl-sys", "lapin", "async-nats", "fe2o3-amqp"],
        why: "the default build needs nothing but a C compiler; brokers are features",
    },
    Boundary {
        args: &["-p", "relais-core", "--edges", "normal"],
        absent: &[
            "tokio",
            "rusqlite",
            "tokio-postgres",
            "reqwest",
            "axum",
            "rdkafka",
            "lapin",
            "async-nats",
            "fe2o3-amqp",
        ],
        why: "the core does no I/O",
    },
    Boundary {
        args: &["-p", "relais-store", "--features", "postgres", "--edges", "normal"],
        absent: &["rusqlite", "sqlx", "axum", "reqwest"],
        why: "a user of PostgreSQL compiles no other system",
    },
    Boundary {
        args: &["-p", "relais-store", "--features", "sqlite", "--edges", "normal"],
        absent: &["tokio-postgres", "deadpool-postgres", "sqlx", "axum", "reqwest"],
        why: "a user of SQLite compiles no other system",
    },
    Boundary {
        args: &["-p", "relais-connect", "--all-features", "--edges", "normal"],
        absent: &["relais-store", "rusqlite", "tokio-postgres"],
        why: "connectors know no store",
    },
    Boundary {
        args: &["-p", "relais-connect", "--features", "http,log", "--edges", "normal"],
        absent: &["rdkafka", "openssl-sys", "lapin", "async-nats", "fe2o3-amqp"],
        why: "a user of HTTP compiles no broker",
    },
    Boundary {
        args: &["-p", "relais", "--edges", "normal"],
        absent: &[
            "rusqlite",
            "tokio-postgres",
            "reqwest",
            "axum",
            "rdkafka",
            "lapin",
            "async-nats",
        ],
        why: "the engine names no database and no broker",
    },
    Boundary {
        args: &["-p", "relais-cli", "--all-features", "--edges", "normal"],
        absent: &["relais-testkit", "relais-store-tests", "tempfile", "proptest", "stateright"],
        why: "test helpers are never shipped",
    },
    Boundary {
        args: &["-p", "relais-cli", "--no-default-features", "--edges", "normal"],
        absent: &["salesforce-sim"],
        why: "the demo and its simulator can be left out",
    },
    Boundary {
        args: &["-p", "relais-testkit", "--all-features", "--edges", "normal"],
        absent: &["stateright", "relais-store-tests", "relais-model", "proptest"],
        why: "users of the test helpers compile no model checker",
    },
];

pub(super) fn single_versions(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for name in SINGLE {
        let versions = locked(tree, name);
        if versions.len() != 1 {
            let text = format!("{name} must be there in one version, found {versions:?}");
            findings.push(TidyFinding::new("Cargo.lock", 0, text));
        }
    }
    findings
}

pub(super) fn sqlite_is_sound(tree: &Tree) -> Vec<TidyFinding> {
    let old = locked(tree, "libsqlite3-sys").into_iter().filter(|version| {
        let parts: Vec<u64> = version.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        parts.as_slice() < SQLITE_BINDING_MIN.as_slice()
    });
    let text = |version| {
        format!(
            "libsqlite3-sys {version} bundles a SQLite below 3.51.3, which can corrupt a WAL database: take 0.37 or later"
        )
    };
    old.map(|version| TidyFinding::new("Cargo.lock", 0, text(version))).collect()
}

pub(super) fn boundaries() -> Result<Vec<TidyFinding>> {
    let mut findings = Vec::new();
    for boundary in BOUNDARIES {
        let names: BTreeSet<String> =
            compiled(boundary.args)?.into_iter().map(|(name, _)| name).collect();
        findings.extend(crossed(boundary, &names));
    }
    Ok(findings)
}

/// OpenSSL comes with Kafka and with nothing else; our own TLS is rustls.
pub(super) fn openssl_is_for_kafka() -> Result<Vec<TidyFinding>> {
    let everything = ["--workspace", "--all-features", "--target", "all"];
    let users = ["--invert", "openssl-sys", "--depth", "1"];
    let names = compiled(&[everything, users].concat())?;
    Ok(other_users(names.iter().map(|(name, _)| name.as_str())))
}

fn other_users<'a>(names: impl Iterator<Item = &'a str>) -> Vec<TidyFinding> {
    let others = names.filter(|name| !["openssl-sys", OPENSSL_USER].contains(name));
    let text =
        |name| format!("{name} uses OpenSSL; only {OPENSSL_USER} may: take its rustls feature");
    others.map(|name| TidyFinding::new("Cargo.toml", 0, text(name))).collect()
}

fn crossed(boundary: &Boundary, names: &BTreeSet<String>) -> Vec<TidyFinding> {
    let present = boundary.absent.iter().filter(|name| names.contains(**name));
    let tree = boundary.args.join(" ");
    let text = |name: &&str| format!("`cargo tree {tree}` has {name}: {}", boundary.why);
    present.map(|name| TidyFinding::new("Cargo.toml", 0, text(name))).collect()
}

/// The versions of a package in the lock file.
fn locked(tree: &Tree, name: &str) -> Vec<String> {
    let wanted = format!("name = \"{name}\"");
    let lines: Vec<&str> = tree.get("Cargo.lock").map_or(Vec::new(), |f| f.text.lines().collect());
    let entries = lines.windows(2).filter(|pair| pair[0] == wanted);
    entries.filter_map(|pair| pair[1].split('"').nth(1).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(entries: &[(&str, &str)]) -> Tree {
        let entry = |(name, version): &(&str, &str)| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n")
        };
        let text: String = entries.iter().map(entry).collect();
        Tree::of(&[("Cargo.lock", &text)])
    }

    #[test]
    fn a_second_sqlite_is_found() {
        let good = lock(&[("rusqlite", "0.39.0"), ("libsqlite3-sys", "0.37.0")]);
        assert_eq!(single_versions(&good), []);
        let bad =
            lock(&[("rusqlite", "0.39.0"), ("libsqlite3-sys", "0.37.0"), ("rusqlite", "0.41.0")]);
        assert_eq!(single_versions(&bad).len(), 1);
        assert_eq!(single_versions(&lock(&[])).len(), 2);
    }

    #[test]
    fn an_unsound_sqlite_is_found() {
        assert_eq!(sqlite_is_sound(&lock(&[("libsqlite3-sys", "0.36.9")])).len(), 1);
        assert_eq!(sqlite_is_sound(&lock(&[("libsqlite3-sys", "0.37.0")])), []);
        assert_eq!(sqlite_is_sound(&lock(&[("libsqlite3-sys", "1.0.0")])), []);
    }

    #[test]
    fn a_crossed_boundary_is_found() {
        let names = ["tokio", "serde"].map(str::to_owned).into();
        let findings = crossed(&BOUNDARIES[2], &names);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("has tokio: the core does no I/O"));
    }

    #[test]
    fn a_second_user_of_openssl_is_found() {
        assert_eq!(other_users(["openssl-sys", "rdkafka-sys"].into_iter()), []);
        let findings = other_users(["openssl-sys", "rdkafka-sys", "native-tls"].into_iter());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.starts_with("native-tls uses OpenSSL"));
    }
}
