//! The arguments of a decision: reason, actor, dry run and confirmation.

use std::env;

use clap::Args;

use crate::failure::CommandError;

#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    /// Reason, recorded in the audit log
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Actor, recorded in the audit log (default: the current user)
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only print the expected result
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl DecisionArgs {
    /// Refuses a bulk action without a reason.
    pub(crate) fn needs_reason(&self, action: &str) -> Result<(), CommandError> {
        if self.reason.trim().is_empty() {
            let text = format!("cannot {action} without a reason; pass --reason TEXT");
            return Err(CommandError::Usage(text));
        }
        Ok(())
    }

    /// Returns the actor: `--actor`, `$USER`, `$LOGNAME` or the user of the process.
    pub(crate) fn actor(&self) -> Result<String, CommandError> {
        let named = self.actor.clone().into_iter();
        let known = ["USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok());
        let mut names = named.chain(known).map(|name| name.trim().to_owned());
        if let Some(name) = names.find(|name| !name.is_empty()) {
            return Ok(name);
        }
        current_user().ok_or_else(|| {
            CommandError::Usage("cannot determine the current user; pass --actor NAME".to_owned())
        })
    }
}

/// Returns the user of this process, or its number if it has no name, as in many containers.
fn current_user() -> Option<String> {
    whoami::username().ok().filter(|name| !name.is_empty()).or_else(user_number)
}

#[cfg(unix)]
fn user_number() -> Option<String> {
    let process = std::fs::metadata("/proc/self").ok()?;
    Some(format!("uid {}", std::os::unix::fs::MetadataExt::uid(&process)))
}

#[cfg(not(unix))]
fn user_number() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_actor_is_used_and_a_blank_one_is_not() {
        let decision = |actor: Option<&str>| DecisionArgs {
            reason: String::new(),
            actor: actor.map(str::to_owned),
            dry_run: false,
            yes: false,
        };
        assert_eq!(decision(Some("ann")).actor().unwrap(), "ann");
        assert_ne!(decision(Some(" ")).actor().unwrap(), " ");
    }
}
