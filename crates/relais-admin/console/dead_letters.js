// Dead letters: the list with actions on all matching ones, and the detail page with an editor for the payload.

import { h, replace } from "./dom.js";
import { get, may, post, postText } from "./api.js";
import { ago, count, moment, plural } from "./format.js";
import { attempts, button, code, copyable, errorText, heading, headers, notice, panel, payload, problemNotice, split, status, toast, worker } from "./parts.js";
import { jsonProblem, formatted } from "./json_text.js";
import { SINCE, listPage } from "./table.js";
import { RETRY, actor, decide, selection, settle } from "./dialog.js";
import { story } from "./message.js";
import { refresh } from "./live.js";

/** Interval at which the row of a retried dead letter is read. */
const FOLLOW_MS = 1000;

export function list(context) {
  return listPage(context, {
    title: "Dead letters",
    about: "Messages and processes that need an operator's decision, newest first. Each is kept here with its error.",
    base: "#/dead-letters",
    path: "/dead-letters",
    filters: [
      { name: "status", label: "Status", initial: "open", options: [["open", "open"], ["resolved", "resolved"], ["all", "all"]] },
      { name: "type", label: "Type" },
      { name: "key", label: "Key" },
      { name: "destination", label: "Destination" },
      SINCE,
    ],
    columns: [
      { title: "Type", cell: (row) => row.event_type ?? "no type" },
      { title: "Status", cell: (row) => stateOf(row) },
      { title: "Where", cell: (row) => place(row) },
      { title: "Key", cell: (row) => code(row.msg_key) },
      { title: "Error", cell: (row) => problemOf(row), kind: "wide" },
      { title: "Attempts", cell: (row) => count(row.attempts), kind: "numeric" },
      { title: "Parked", cell: (row) => ago(row.parked_at) },
    ],
    key: (row) => row.id,
    href: (row) => `#/dead-letters/${row.id}`,
    empty: ["No dead letters", "A message that cannot be delivered or handled, or a process that cannot continue, is listed here for a decision."],
    actions: (values) => (values.status === "open" ? bulk(context, values) : []),
  });
}

function stateOf(row) {
  if (row.resolution) return status(row.resolution);
  return status(row.edited_at ? "edited" : "open");
}

function place(row) {
  if (row.origin === "process") return "process";
  return row.origin === "inbox" ? `from ${row.source_system ?? "–"}` : `to ${row.destination ?? "–"}`;
}

function problemOf(row) {
  return [row.error_class ? h("code", null, row.error_class) : null, " ", row.error_message ?? row.failed_status];
}

/** The actions on all dead letters that match the filters. */
function bulk(context, values) {
  const chosen = selection({ ...values, status: "" });
  const words = Object.entries(chosen.filter ?? {}).map(([name, value]) => `${name.replace("_seconds", "")} ${value}`).join(", ") || "all open dead letters";
  const ask = (action, title, confirm, danger) => async () => {
    try {
      const { matching } = await post(`/dead-letters/${action}`, { ...chosen, dry_run: true, actor: actor(), reason: "preview" });
      if (!matching) return toast("No open dead letter matches.", "warn");
      const answer = await decide({
        title,
        text: `Applies to all open dead letters that match, not only to this page: ${words}.`,
        preview: h("p", { class: "preview" }, h("strong", null, plural(matching, "dead letter", "dead letters"))),
        confirm: `${confirm} ${count(matching)}`,
        danger,
        act: (who) => post(`/dead-letters/${action}`, { ...chosen, dry_run: false, ...who }),
      });
      if (!answer) return;
      toast(`${count(answer.done)} done, ${count(answer.unchanged)} unchanged, ${count(answer.refused)} refused.${answer.more ? " More dead letters match: repeat the action." : ""}`);
      refresh();
      context.reload();
    } catch (problem) {
      toast(`${problem.message} ${problem.advice ?? ""}`, "bad");
    }
  };
  return [
    may("operator") ? button("Retry all matching", ask("replay", "Retry all matching", "Retry", false), { picture: "retry" }) : null,
    may("admin") ? button("Discard all matching", ask("discard", "Discard all matching", "Discard", true), { kind: "quiet-danger", picture: "bad" }) : null,
  ].filter(Boolean);
}

export async function show(context) {
  const path = `/dead-letters/${encodeURIComponent(context.params[0])}`;
  const row = await get(path, { signal: context.signal });
  const open = !row.resolution;
  const act = (action, title, text, confirm, danger) => () =>
    settle(context, decide({ title, text, confirm, danger, act: (who) => post(`${path}/${action}`, who) }), `${confirm}: done.`);
  const actions = open && may("operator") ? [
    button("Retry", act("replay", "Retry this message", RETRY, "Retry", false), { kind: "primary", picture: "retry" }),
    button("Discard", act("discard", "Discard this message", "The message stays failed, and delivery of its key continues without it. This cannot be undone.", "Discard", true), { kind: "quiet-danger", picture: "bad" }),
  ] : [];
  const target = row.origin === "process" ? `#/processes/${encodeURIComponent(row.message_id)}` : `#/${row.origin}/${row.origin_id}`;
  const side = [
    ["State", stateOf(row)],
    ["Where", place(row)],
    ["Row", h("a", { href: target }, row.origin === "process" ? "the process" : `${row.origin} row ${row.origin_id}`)],
    ["Row now", row.resolution === "retried" ? outcome(context, row) : null],
    ["Message id", copyable(row.message_id)],
    ["Key", copyable(row.msg_key)],
    ["Failed as", row.failed_status.toLowerCase().replaceAll("_", " ")],
    ["Attempts", count(row.attempts)],
    ["Parked", moment(row.parked_at)],
    ["Worker", worker(row.parked_by)],
    ["Edited", row.edited_at ? [row.edited_by, ", ", moment(row.edited_at)] : null],
    ["Decided", row.resolved_at ? [row.resolved_by, ", ", moment(row.resolved_at)] : null],
    ["Reason", row.reason],
  ];
  return h("div", { class: "page" },
    heading(row.event_type ?? "Dead letter", ["Dead letter ", code(row.id)], actions),
    panel("Last error", errorText(row.error_class, row.error_message ?? row.failed_status)),
    row.parked_key ? parkedKey(row.parked_key) : null,
    split([
        row.origin !== "process" ? editor(context, row, path, open && may("admin")) : null,
        row.original_payload !== null && row.original_payload !== undefined ? panel("Payload before it was edited", payload(row.original_payload)) : null,
        panel("Headers", headers(row.headers)),
        panel("Attempts", attempts(row.history)),
        await story(`dead-letter:${row.id}`, context.signal),
      ], side));
}

/** The row of a retried dead letter: its state, until that is final. */
function outcome(context, row) {
  if (row.origin === "process") return null;
  const place = h("span", { "aria-live": "polite" }, "…");
  let again = null;
  const look = async () => {
    try {
      const now = await get(`/${row.origin}/${row.origin_id}`, { signal: context.signal });
      replace(place, status(now.status));
      if (["DISPATCHED", "PROCESSED", "FAILED"].includes(now.status)) return;
    } catch (problem) {
      if (context.signal.aborted) return;
      if (problem.status === 404) return replace(place, "no longer stored");
    }
    again = setTimeout(look, FOLLOW_MS);
  };
  context.leave(() => clearTimeout(again));
  look();
  return place;
}

function parkedKey({ backlog, msg_key: key }) {
  const title = backlog ? `${plural(backlog, "row waits", "rows wait")} behind it` : "The key is parked";
  return notice("warn", title, `Later messages of the key ${key} continue when this one is retried or discarded.${backlog ? "" : " None is waiting yet."}`);
}

/** The payload, and a field to fix it: validated with the real handler before it is saved. */
function editor(context, row, path, allowed) {
  const place = h("div");
  const look = () => {
    const shown = payload(row.payload, { truncated: row.payload_truncated, size: row.payload_bytes, download: `/api/v1${path}/payload` });
    replace(place, shown, offer());
  };
  // Saving a truncated payload would lose the rest of it.
  const offer = () => {
    if (!allowed) return null;
    if (row.payload_truncated) return h("p", { class: "soft under" }, "The payload is too large to be edited here: use ", h("code", null, `relais dead-letter edit ${row.id}`), ".");
    return h("div", { class: "under" }, button("Edit the payload", edit, { picture: "audit" }));
  };
  const edit = () => {
    const field = h("textarea", { class: "editor", id: "payload", rows: "14", spellcheck: "false", value: formatted(row.payload ?? "") });
    const result = h("div", { "aria-live": "polite" });
    const body = (who, flags) => {
      // The payload is inserted as text, so that its numbers keep every digit.
      const rest = JSON.stringify({ ...who, ...flags, edited_at: row.edited_at ?? null });
      return `{"payload":${field.value},${rest.slice(1)}`;
    };
    const checked = () => {
      const wrong = jsonProblem(field.value);
      if (wrong) replace(result, notice("bad", "This is not JSON", wrong));
      return !wrong;
    };
    const validate = async () => {
      if (!checked()) return;
      try {
        await postText(`${path}/edit`, body({ actor: actor(), reason: "validation" }, { dry_run: true }));
        // Of an outgoing message only the syntax is known here: calling it deliverable would be a guess.
        replace(result, row.origin === "outbox"
          ? notice("ok", "Valid JSON", "The destination checks it only when the message is sent. Nothing was changed.")
          : notice("ok", "Validation passed", "Routes, handler or process accept this payload. Nothing was changed."));
      } catch (problem) {
        replace(result, problem.status === 422 ? notice("bad", "Validation failed", problem.message) : problemNotice(problem));
      }
    };
    const force = h("input", { type: "checkbox", id: "force" });
    const store = (who) => postText(`${path}/edit`, body(who, { force: force.checked }));
    const ask = (title, confirm, effect, act, done) => () => {
      if (!checked()) return;
      const text = `${force.checked ? "Saves it even if validation fails." : "Validates it first and saves it only if that succeeds."} ${effect}`;
      settle(context, decide({ title, text, confirm, act }), done);
    };
    const save = ask("Save this payload", "Save", "The message stays a dead letter until you retry it.", store, "Saved. Retry the message when you are ready.");
    let saved = false;
    const saveAndRetry = ask("Save this payload and retry", "Save and retry", "Then the message is retried at once.", async (who) => {
      // After a retry that failed only the retry is left to do.
      if (!saved) await store(who);
      saved = true;
      return post(`${path}/replay`, who);
    }, "Saved. The message will be retried.");
    const reformat = () => (field.value = formatted(field.value));
    replace(place,
      h("label", { for: "payload", class: "hidden-words" }, "Payload"), field, result,
      h("div", { class: "under" },
        button("Validate", validate, { picture: "run" }), button("Save and retry", saveAndRetry, { kind: "primary", picture: "retry" }), button("Save", save), button("Format", reformat), button("Cancel", look),
        h("label", { class: "check" }, force, "Save even if validation fails")));
    field.focus();
  };
  look();
  return panel("Payload", place);
}
