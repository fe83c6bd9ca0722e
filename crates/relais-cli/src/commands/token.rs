//! `relais token`: a new token, and the block of `relais.toml` that lets it in.

use std::fmt::Write;

use relais_core::text::sha256_hex;
use serde_json::json;

use super::Context;
use crate::{
    args::TokenArgs,
    failure::{Done, Failure},
};

/// Prints it once; only its hash is kept, and only where a person puts it.
pub(crate) fn token(context: &Context, args: &TokenArgs) -> Done {
    let token = random().map_err(Failure::failed)?;
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
        "{token}\n\n# Give the line above to {name}; it is not shown again. Add this to relais.toml, then \
         restart relais:\n\n{block}"
    ))
}

/// 256 random bits. The first word is for those who look for secrets in the wrong place.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    Ok(format!("relais_{hex}"))
}
