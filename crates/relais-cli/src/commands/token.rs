//! `relais token`: creates a token and the section of `relais.toml` for it.

use std::fmt::Write;

use relais_core::text::sha256_hex;
use serde_json::json;

use super::CommandContext;
use crate::{
    args::TokenArgs,
    failure::{CommandError, Done},
};

/// Prints the token once; only its hash belongs in the configuration.
pub(crate) fn token(context: &CommandContext, args: &TokenArgs) -> Done {
    let token = random().map_err(CommandError::failed)?;
    let sha256 = sha256_hex(token.as_bytes());
    let (name, role) = (&args.name, args.role.as_str());
    if context.output.json {
        return context.output.print_json(&json!({
            "token": token, "name": name, "role": role, "sha256": sha256, "expires": args.expires,
        }));
    }
    let mut block =
        format!("[[admin.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n");
    if let Some(day) = &args.expires {
        let _ = writeln!(block, "expires = \"{day}\"");
    }
    context.output.print(&format!(
        "{token}\n\n# Send the line above to {name}; it is not shown again. Add this to relais.toml, then \
         restart relais:\n\n{block}"
    ))
}

/// Returns 256 random bits. The prefix lets secret scanners recognize the token.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("cannot generate random numbers: {error}"))?;
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    Ok(format!("relais_{hex}"))
}
