//! `relais dead-letter edit`: another payload, validated before it is saved.

use std::io::{self, IsTerminal};

use relais::desk::{Answer, Basis, By, Insist, Report, Rewrite};
use relais_core::{dead_letter::Origin, desk::IdKind, repair::Mode};
use serde_json::json;
use uuid::Uuid;

use super::{At, decide::said, editor::Draft};
use crate::{
    args::EditArgs,
    commands::{ids, repair::read_payload, rows::not_found},
    failure::{Done, Failure},
    output::{Lines, escape},
};

/// A new payload, and what the person looked at when they wrote it.
struct Written {
    payload: String,
    basis: Basis,
    /// Their text, so that it is not lost when it is refused.
    draft: Option<Draft>,
}

pub(super) async fn edit(at: &At<'_>, args: EditArgs) -> Done {
    let id = ids::only(at.store, IdKind::DeadLetter, &args.id).await?;
    let written = write(at, &args, id).await?;
    let dry_run = args.decision.dry_run;
    let rewrite = Rewrite {
        payload: written.payload,
        basis: written.basis,
        insist: if args.force { Insist::Forced } else { Insist::Rehearsed },
        mode: if dry_run { Mode::Try } else { Mode::Write },
    };
    let by = By::new(&args.decision.actor()?, &args.decision.reason);
    let answer = at.desk.edit(id, rewrite, &by).await?;
    let output = &at.context.output;
    let done = answer == Answer::Done;
    let validated = if done && dry_run { validated(at, id).await? } else { VALID_JSON };
    if output.json && done && dry_run {
        let (result, _) = validated;
        output.print_json(&json!({ "id": id, "dry_run": true, "result": result }))?;
    } else if output.json {
        output.print_json(&Report { id, answer })?;
    } else {
        let text = match (&answer, dry_run) {
            (Answer::Done, true) => format!("dry run: {}; nothing was changed", validated.1),
            (Answer::Done, false) => {
                format!("edited; next: relais dead-letter replay {id}")
            }
            (other, _) => format!("{id} {}", said(other)),
        };
        output.print(&escape(&text, Lines::Escape))?;
    }
    if let Some(draft) = written.draft {
        if done && !dry_run {
            draft.remove();
        } else {
            eprintln!("your text is in {}", draft.path().display());
        }
    }
    if done { Ok(()) } else { Err(Failure::Said) }
}

const VALID_JSON: (&str, &str) =
    ("valid_json", "valid JSON; whether the destination accepts it is known when it is sent again");
const HANDLED: (&str, &str) = ("would_be_handled", "the message would be handled with it");

/// What a validation has shown: of a message that goes out, only that its payload is JSON.
async fn validated(at: &At<'_>, id: uuid::Uuid) -> Result<(&'static str, &'static str), Failure> {
    let letter = at.store.find_dead_letter(id).await?;
    let is_inbox = letter.is_some_and(|letter| letter.origin == Origin::Inbox);
    Ok(if is_inbox { HANDLED } else { VALID_JSON })
}

async fn write(at: &At<'_>, args: &EditArgs, id: Uuid) -> Result<Written, Failure> {
    let given = match (&args.payload, &args.payload_file) {
        (Some(json), _) => Some(json.trim().to_owned()),
        (None, Some(path)) => {
            let bytes = read_payload(path)?;
            Some(
                String::from_utf8(bytes)
                    .map_err(|_| Failure::failed("the payload is not UTF-8"))?,
            )
        }
        (None, None) => None,
    };
    if let Some(payload) = given {
        return Ok(Written { payload, basis: Basis::AsItIs, draft: None });
    }
    let editor = ["VISUAL", "EDITOR"].iter().filter_map(|name| std::env::var(name).ok());
    let editor = editor.into_iter().find(|editor| !editor.trim().is_empty());
    let Some(editor) = editor.filter(|_| io::stdin().is_terminal()) else {
        return Err(Failure::Usage(
            "give the new payload with --payload or --payload-file; on a terminal, with EDITOR set, \
             an editor opens"
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
        return Err(Failure::failed("the payload is as it was; nothing was changed"));
    }
    Ok(Written { payload, basis: Basis::Seen(letter.edited_at), draft: Some(draft) })
}
