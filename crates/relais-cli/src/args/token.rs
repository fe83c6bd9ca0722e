//! `relais token`.

use clap::Args;
use relais_admin::Role;

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Who gets it: the actor of what is done with it
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// What it allows: monitor (see everything but payloads and headers), viewer (see them too), operator
    /// (act on rows, keys and processes) or admin (also change payloads and discard many)
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) role: Role,
    /// The day from which on it is no longer taken
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) expires: Option<String>,
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| {
        let all = Role::ALL.map(Role::as_str).join(", ");
        format!("must be one of {all}")
    })
}

/// It stands in the audit, and in TOML between quotes.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.@ ".contains(c);
    if text == relais_admin::SHARED_NAME {
        return Err("is the name of `admin.token`; say who gets this one".to_owned());
    }
    if text.trim() != text || text.is_empty() || text.len() > 200 || !text.chars().all(fits) {
        return Err("may have letters, digits, spaces and - _ . @".to_owned());
    }
    Ok(text.to_owned())
}

fn day(text: &str) -> Result<String, String> {
    crate::settings::date(text).map(|_| text.to_owned())
}
