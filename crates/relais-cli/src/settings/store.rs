//! `[store]`: the database, and the part of its URL that may be shown.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use relais::postgres::PostgresOptions;
use relais_core::{
    setting::{Integer, NameText, OnOff, SettingForm, TimeSpan},
    settings, text_kinds,
};
use secrecy::{ExposeSecret, SecretString};

use super::{destination::number, reader::Section};

/// No longer than relais decides by itself.
const POLL_DEFAULT: Duration = Duration::from_millis(1);

settings! {
    /// `[store]`
    pub(crate) struct StoreSettings {
        /// `sqlite:FILE` (created if missing), or `postgres://USER:PASSWORD@HOST:PORT/DATABASE` with libpq's parameters: [postgresql.md](postgresql.md#connections)
        url: StoreAddress = StoreUrl::Sqlite("relais.db".into());
        /// `relais run` creates and updates the tables. `false`: only `relais migrate` does
        migrate: OnOff = true;
        /// time that `relais run` waits at its start for a database that does not answer. Other commands do not wait
        wait: TimeSpan = Duration::from_secs(60);
        /// PostgreSQL: the schema of the tables. It must exist
        schema: Option<NameText> => "the first of the `search_path`";
        /// PostgreSQL: maximum connections of this process
        connections: Integer = number(PostgresOptions::default().connections_max), 4..=1_000;
        /// the shortest pause between two polls for rows of other programs. relais polls every 4 to 40 ms and is woken by its own sends; other outboxes poll every 1 to 5 s
        poll: TimeSpan = POLL_DEFAULT, POLL_DEFAULT..=Duration::from_secs(60);
        /// accept a database that may lose acknowledged messages in a power cut. For tests
        unsafe_durability: OnOff = false;
    }
}

text_kinds! {
    /// The URL of a database. It may hold a password.
    pub(crate) StoreAddress -> StoreUrl, "text", store_url, show ToString::to_string,
        form SettingForm::Text("^(sqlite|postgres|postgresql):"), hidden true;
}

/// Reads the section.
pub(super) fn store(section: Section<'_>, folder: &Path) -> StoreSettings {
    let mut settings: StoreSettings = section.read_with(&());
    if let StoreUrl::Sqlite(path) = &mut settings.url {
        *path = folder.join(&*path);
        for key in ["schema", "connections"].into_iter().filter(|key| section.has(key)) {
            section.error(key, "is for PostgreSQL; must be used with a postgres:// `url`");
        }
    }
    if settings.unsafe_durability {
        section.warn("unsafe_durability", "a power failure may lose acknowledged messages");
    }
    section.finish();
    settings
}

impl StoreSettings {
    pub(crate) fn postgres(&self) -> PostgresOptions {
        let mut options = PostgresOptions::default().unsafe_durability(self.unsafe_durability);
        options.schema.clone_from(&self.schema);
        options.connections_max = self.connections as usize;
        options
    }
}

/// The place of the rows.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Postgres { url: SecretString, shown: String },
}

impl StoreUrl {
    /// Returns host and port, or the file: what an operator checks when it does not answer.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { url, .. } => relais::postgres::addresses(url.expose_secret()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres { shown, .. } => f.write_str(shown),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Reads a URL. Errors never repeat it.
fn store_url(text: &str) -> Result<StoreUrl, String> {
    let (scheme, rest) = text.split_once(':').ok_or(HOW)?;
    match scheme {
        "sqlite" => sqlite_path(rest).map(StoreUrl::Sqlite),
        "postgres" | "postgresql" => {
            relais::postgres::check_url(text)?;
            let shown = format!("{scheme}://{}", shown_part(rest.trim_start_matches('/')));
            Ok(StoreUrl::Postgres { url: text.to_owned().into(), shown })
        }
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
        return Err("has parameters, which relais refuses in a sqlite url".to_owned());
    }
    Ok(PathBuf::from(path))
}

/// Returns user, host and database. Anything that could be part of a password hides all.
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
        store_url(text).map(|url| url.to_string())
    }

    #[test]
    fn sqlite_urls_name_a_file() {
        assert_eq!(check("sqlite:relais.db").unwrap(), "sqlite:relais.db");
        assert_eq!(check("sqlite://data/r.db").unwrap(), "sqlite:data/r.db");
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
            let said = store_url(url).map_or_else(|why| why, |url| format!("{url} {url:?}"));
            assert!(!said.contains("CANARY"), "{said}");
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
