//! `relais token`.

use std::time::SystemTime;

use clap::Args;
use relais_admin::Role;

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Name of the owner, recorded as actor in the audit log
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Role: monitor (sees everything but payloads and headers), viewer (sees them too), operator (acts on
    /// rows, keys and processes) or admin (also changes payloads and discards in bulk)
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) role: Role,
    /// Expiry date (UTC)
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) expires: Option<String>,
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| {
        let all = Role::ALL.map(Role::as_str).join(", ");
        format!("must be one of {all}")
    })
}

/// Checks a name, which is written to the audit log and to TOML.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.@ ".contains(c);
    if text == relais_admin::SHARED_NAME {
        return Err(
            "is the name of the shared `admin.token`; pass the name of the owner".to_owned()
        );
    }
    if text.trim() != text || text.is_empty() || text.len() > 200 || !text.chars().all(fits) {
        return Err("may contain letters, digits, spaces and - _ . @".to_owned());
    }
    Ok(text.to_owned())
}

fn day(text: &str) -> Result<String, String> {
    match crate::settings::date(text)? {
        at if at <= SystemTime::now() => Err("is over; the token could not be used".to_owned()),
        _ => Ok(text.to_owned()),
    }
}
