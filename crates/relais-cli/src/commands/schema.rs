//! `relais schema`: the JSON schema of the configuration.

use super::CommandContext;
use crate::{
    failure::{CommandError, Done},
    settings::schema::schema,
};

/// Prints the schema.
pub(crate) fn schema_json(context: &CommandContext) -> Done {
    let text = serde_json::to_string_pretty(&schema()).map_err(CommandError::failed)?;
    context.output.print(&text)
}
