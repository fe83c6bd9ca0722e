//! `store.url`: which database, and what of the URL may be shown.

use std::path::{Path, PathBuf};

use super::types::StoreUrl;

/// Reads a store URL. A relative SQLite path starts at the folder of the settings file. Errors never
/// repeat the URL: it may hold a password.
pub(super) fn store_url(text: &str, folder: &Path) -> Result<StoreUrl, String> {
    let (scheme, rest) = text.split_once(':').ok_or(HOW)?;
    match scheme {
        "sqlite" => sqlite_path(rest).map(|path| StoreUrl::Sqlite(folder.join(path))),
        "postgres" | "postgresql" => Ok(StoreUrl::Postgres {
            url: text.to_owned().into(),
            shown: format!("{scheme}://{}", shown_part(rest.trim_start_matches('/'))),
        }),
        "mysql" | "mariadb" | "oracle" => {
            Err(format!("{scheme} is not in this build yet; this version has: sqlite, postgres"))
        }
        _ => Err(HOW.to_owned()),
    }
}

const HOW: &str = "is not a store; write \"sqlite:FILE\" or \"postgres://USER@HOST/DATABASE\"";

fn sqlite_path(rest: &str) -> Result<PathBuf, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err("names no file; write \"sqlite:FILE\"".to_owned());
    }
    if path.contains(":memory:") {
        return Err("keeps rows in memory only, where a crash loses them; name a file".to_owned());
    }
    if path.contains('?') {
        return Err("has parameters, which a sqlite url does not take here".to_owned());
    }
    Ok(PathBuf::from(path))
}

/// User, host and database. Anything that could be part of a password in an odd place hides all.
fn shown_part(rest: &str) -> String {
    const HIDDEN: &str = "***";
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        return HIDDEN.to_owned();
    }
    let (user, place) = match before_query.split_once('@') {
        Some((login, place)) => (login.split(':').next().unwrap_or_default(), place),
        None => ("", before_query),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_,:/[]%".contains(c);
    if !place.chars().all(plain) || !user.chars().all(plain) {
        return HIDDEN.to_owned();
    }
    if user.is_empty() { place.to_owned() } else { format!("{user}@{place}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<String, String> {
        store_url(text, Path::new("/etc/relais")).map(|url| url.to_string())
    }

    #[test]
    fn sqlite_paths_start_at_the_settings_file() {
        assert_eq!(check("sqlite:relais.db").unwrap(), "sqlite:/etc/relais/relais.db");
        assert_eq!(check("sqlite://data/r.db").unwrap(), "sqlite:/etc/relais/data/r.db");
        assert_eq!(check("sqlite:///var/r.db").unwrap(), "sqlite:/var/r.db");
        assert!(check("sqlite::memory:").unwrap_err().contains("memory"));
        assert!(check("sqlite:").is_err());
    }

    #[test]
    fn the_password_of_a_url_is_never_shown() {
        let urls = [
            "postgres://relais:CANARY@db:5432/app",
            "postgresql://relais:CANARY@a:1,b:2/app?sslmode=require",
            "postgres://relais:pa/CANARY@db/app",
            "postgres://relais:pa?CANARY@db/app",
            "postgres://relais:pa@CANARY@db/app",
            "postgres://db/app?user=x&password=CANARY",
            "postgres://db/app?password=x@CANARY",
            "postgres:host=db password=CANARY",
        ];
        for url in urls {
            let url = store_url(url, Path::new("")).unwrap();
            assert!(!format!("{url} {url:?}").contains("CANARY"), "{url}");
        }
        assert_eq!(check(urls[0]).unwrap(), "postgres://relais@db:5432/app");
    }

    #[test]
    fn databases_of_later_versions_are_named_as_such() {
        assert_eq!(
            check("mysql://root:CANARY@db/app").unwrap_err(),
            "mysql is not in this build yet; this version has: sqlite, postgres"
        );
        assert!(!check("CANARY").unwrap_err().contains("CANARY"));
    }
}
