//! `relais dead-letter edit`: validates and saves another payload.

use std::io::{self, IsTerminal};

use relais::dead_letters::{
    Basis, DecisionAuthor, DecisionOutcome, DecisionReport, EditValidation, PayloadEdit,
};
use relais_core::{dead_letter::Origin, inspect::InspectExt, repair::Mode};
use serde_json::json;
use uuid::Uuid;

use super::{DeadLetterContext, decide::unchanged_text, editor::Draft};
use crate::{
    args::EditArgs,
    commands::{ids, repair::read_payload, rows::not_found},
    failure::{CommandError, Done},
    output::{LineBreaks, escape},
};

/// A new payload, and the state of the dead letter when it was written.
struct NewPayload {
    payload: String,
    basis: Basis,
    /// The text in the editor, kept if it is refused.
    draft: Option<Draft>,
}

pub(super) async fn edit(at: &DeadLetterContext<'_>, args: EditArgs) -> Done {
    let id = ids::only(at.store, &args.id).await?;
    let written = write(at, &args, id).await?;
    let dry_run = args.decision.dry_run;
    let rewrite = PayloadEdit {
        payload: written.payload,
        basis: written.basis,
        insist: if args.force { EditValidation::Skipped } else { EditValidation::Required },
        mode: if dry_run { Mode::Try } else { Mode::Write },
    };
    let by = DecisionAuthor::new(&args.decision.actor()?, &args.decision.reason);
    let answer = at.dead_letters.edit(id, rewrite, &by).await?;
    let output = &at.context.output;
    let done = answer == DecisionOutcome::Done;
    let validated = if done && dry_run { validated(at, id).await? } else { VALID_JSON };
    if output.json && done && dry_run {
        let (result, _) = validated;
        output.print_json(&json!({ "id": id, "dry_run": true, "result": result }))?;
    } else if output.json {
        output.print_json(&DecisionReport { id, answer })?;
    } else {
        let text = match (&answer, dry_run) {
            (DecisionOutcome::Done, true) => {
                format!("dry run: {}; nothing was changed", validated.1)
            }
            (DecisionOutcome::Done, false) => {
                format!("edited; next: relais dead-letter retry {id}")
            }
            (other, _) => format!("{id} {}", unchanged_text(other)),
        };
        output.print(&escape(&text, LineBreaks::Escape))?;
    }
    if let Some(draft) = written.draft {
        if done && !dry_run {
            draft.remove();
        } else {
            eprintln!("your text is in {}", draft.path().display());
        }
    }
    if done { Ok(()) } else { Err(CommandError::Printed) }
}

const VALID_JSON: (&str, &str) =
    ("valid_json", "valid JSON; the destination checks it only when the message is sent");
const HANDLED: (&str, &str) = ("would_be_handled", "the message would be handled");

/// Returns the result of the validation: for an outbox message, only that its payload is JSON.
async fn validated(
    at: &DeadLetterContext<'_>,
    id: uuid::Uuid,
) -> Result<(&'static str, &'static str), CommandError> {
    let letter = at.store.find_dead_letter(id).await?;
    let is_inbox = letter.is_some_and(|letter| letter.origin == Origin::Inbox);
    Ok(if is_inbox { HANDLED } else { VALID_JSON })
}

async fn write(
    at: &DeadLetterContext<'_>,
    args: &EditArgs,
    id: Uuid,
) -> Result<NewPayload, CommandError> {
    let given = match (&args.payload, &args.payload_file) {
        (Some(json), _) => Some(json.trim().to_owned()),
        (None, Some(path)) => {
            let bytes = read_payload(path)?;
            Some(
                String::from_utf8(bytes)
                    .map_err(|_| CommandError::failed("the payload is not UTF-8"))?,
            )
        }
        (None, None) => None,
    };
    if let Some(payload) = given {
        return Ok(NewPayload { payload, basis: Basis::AsItIs, draft: None });
    }
    let editor = ["VISUAL", "EDITOR"].iter().filter_map(|name| std::env::var(name).ok());
    let editor = editor.into_iter().find(|editor| !editor.trim().is_empty());
    let Some(editor) = editor.filter(|_| io::stdin().is_terminal()) else {
        return Err(CommandError::Usage(
            "pass the new payload with --payload or --payload-file, or set EDITOR and use a terminal"
                .to_owned(),
        ));
    };
    let letter = at.store.find_dead_letter(id).await?;
    let letter = letter.ok_or_else(|| not_found("dead letter", &id.to_string()))?;
    let before = letter.payload.unwrap_or_default();
    let draft = Draft::new(&id.to_string(), &before)?;
    let payload = draft.edit(&editor)?;
    if payload == before.trim() {
        draft.remove();
        return Err(CommandError::failed("the payload is the same; nothing was changed"));
    }
    Ok(NewPayload { payload, basis: Basis::Seen(letter.edited_at), draft: Some(draft) })
}
