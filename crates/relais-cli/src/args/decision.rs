//! Who decides, why, and how sure they are.

use std::{env, fs};

use clap::Args;

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Decision {
    /// Why, for the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who, for the audit (default: the user of this terminal)
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only say what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Decision {
    /// Refuses an action on many things without a reason.
    pub(crate) fn needs_reason(&self, action: &str) -> Result<(), Failure> {
        if self.reason.trim().is_empty() {
            let text = format!("cannot {action} without a reason; pass --reason TEXT");
            return Err(Failure::Usage(text));
        }
        Ok(())
    }

    /// Who decides. The audit never has a line by nobody.
    pub(crate) fn actor(&self) -> Result<String, Failure> {
        let named = self.actor.clone().into_iter();
        let known = ["USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok());
        let mut names = named.chain(known).map(|name| name.trim().to_owned());
        if let Some(name) = names.find(|name| !name.is_empty()) {
            return Ok(name);
        }
        login_name().ok_or_else(|| {
            Failure::Usage("cannot determine the current user; pass --actor NAME".to_owned())
        })
    }
}

/// The name of the user this program runs as, or their number where nobody named it.
fn login_name() -> Option<String> {
    let uid = owner_of("/proc/self")?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(name_of(&users, uid).unwrap_or_else(|| format!("uid {uid}")))
}

#[cfg(unix)]
fn owner_of(path: &str) -> Option<u32> {
    fs::metadata(path).ok().map(|found| std::os::unix::fs::MetadataExt::uid(&found))
}

#[cfg(not(unix))]
fn owner_of(_path: &str) -> Option<u32> {
    None
}

fn name_of(users: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = users.find(|fields| fields.get(2) == Some(&uid.as_str()))?;
    Some(own[0].to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n";
        assert_eq!(name_of(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_of(users, 7), None);
    }

    #[test]
    fn whoever_is_named_decides() {
        let decision = |actor: Option<&str>| Decision {
            reason: String::new(),
            actor: actor.map(str::to_owned),
            dry_run: false,
            yes: false,
        };
        assert_eq!(decision(Some("ann")).actor().unwrap(), "ann");
        assert_ne!(decision(Some(" ")).actor().unwrap(), " ");
    }
}
