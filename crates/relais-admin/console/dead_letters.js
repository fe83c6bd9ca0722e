// Rows that need a person: the list with decisions about many, and one with its payload to mend.

import { h, replace } from "./dom.js";
import { get, may, post, postText } from "./api.js";
import { ago, count, moment, plural } from "./format.js";
import { attempts, button, code, copyable, facts, heading, headers, notice, panel, payload, problemNotice, status, toast, worker } from "./parts.js";
import { jsonProblem, laidOut } from "./json_text.js";
import { SINCE, listPage } from "./table.js";
import { actor, decide, settle } from "./dialog.js";
import { story } from "./message.js";
import { refresh } from "./live.js";

/** How often the row of a retried dead letter is looked at. */
const FOLLOW_MS = 1000;

export function list(context) {
  return listPage(context, {
    title: "Dead letters",
    about: "Messages and processes that need a person, newest first. Nothing is lost: each waits here with its reason.",
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
      { title: "Problem", cell: (row) => problemOf(row), kind: "wide" },
      { title: "Attempts", cell: (row) => count(row.attempts), kind: "numeric" },
      { title: "Parked", cell: (row) => ago(row.parked_at) },
    ],
    key: (row) => row.id,
    href: (row) => `#/dead-letters/${row.id}`,
    empty: ["No dead letter", "A message that fails for good, or a process that cannot go on, comes here and waits for you."],
    actions: (values) => (values.status === "open" ? bulk(context, values) : []),
  });
}

function stateOf(row) {
  if (row.resolution) return status(row.resolution);
  return row.edited_at ? status("edited", "edited") : status("open");
}

function place(row) {
  if (row.origin === "process") return "process";
  return row.origin === "inbox" ? `from ${row.source_system ?? "–"}` : `to ${row.destination ?? "–"}`;
}

function problemOf(row) {
  return [row.error_class ? h("code", null, row.error_class) : null, " ", row.error_message ?? row.failed_status];
}

/** Decisions about everything the filters show. */
function bulk(context, values) {
  const filter = Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== "" && name !== "status").map(([name, value]) => [name, name === "since_seconds" ? Number(value) : value]));
  const words = Object.entries(filter).map(([name, value]) => `${name.replace("_seconds", "")} ${value}`).join(", ") || "all open dead letters";
  const chosen = Object.keys(filter).length ? { filter } : { all: true };
  const ask = (action, title, confirm, danger) => async () => {
    try {
      const { matching } = await post(`/dead-letters/${action}`, { ...chosen, dry_run: true, actor: actor(), reason: "preview" });
      if (!matching) return toast("No open dead letter matches.", "warn");
      const answer = await decide({
        title,
        text: `This is for every open dead letter that matches: ${words}.`,
        preview: h("p", { class: "preview" }, h("strong", null, plural(matching, "dead letter", "dead letters"))),
        confirm: `${confirm} ${count(matching)}`,
        danger,
        act: (who) => post(`/dead-letters/${action}`, { ...chosen, dry_run: false, ...who }),
      });
      if (!answer) return;
      toast(`${count(answer.done)} done, ${count(answer.unchanged)} unchanged, ${count(answer.refused)} refused.${answer.more ? " More are left: do it again." : ""}`);
      refresh();
      context.reload();
    } catch (problem) {
      toast(`${problem.message} ${problem.advice ?? ""}`, "bad");
    }
  };
  return [
    may("operator") ? button("Replay all shown", ask("replay", "Replay many", "Replay", false), { picture: "retry" }) : null,
    may("admin") ? button("Discard all shown", ask("discard", "Discard many", "Discard", true), { kind: "quiet-danger", picture: "bad" }) : null,
  ].filter(Boolean);
}

export async function show(context) {
  const path = `/dead-letters/${encodeURIComponent(context.params[0])}`;
  const row = await get(path, { signal: context.signal });
  const open = !row.resolution;
  const act = (action, title, text, confirm, danger) => () =>
    settle(context, decide({ title, text, confirm, danger, act: (who) => post(`${path}/${action}`, who) }), `${confirm}: done.`);
  const actions = open && may("operator") ? [
    row.origin !== "process" || row.resolution === null ? button("Replay", act("replay", "Replay this message", "It is tried again, first in its key, with attempts from zero.", "Replay", false), { kind: "primary", picture: "retry" }) : null,
    button("Discard", act("discard", "Discard this message", "It stays failed, and its key goes on without it. This cannot be undone.", "Discard", true), { kind: "quiet-danger", picture: "bad" }),
  ] : [];
  const target = row.origin === "process" ? `#/processes/${encodeURIComponent(row.message_id)}` : `#/${row.origin}/${row.origin_id}`;
  const side = facts([
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
  ]);
  return h("div", { class: "page" },
    heading(row.event_type ?? "Dead letter", ["Dead letter ", code(row.id)], actions.filter(Boolean)),
    panel("Why it is here", h("p", { class: "error-text" }, problemOf(row))),
    row.parked_key ? held(row.parked_key) : null,
    h("div", { class: "split" },
      h("div", { class: "main-part" },
        row.origin !== "process" ? editor(context, row, path, open && may("admin")) : null,
        row.original_payload !== null && row.original_payload !== undefined ? panel("Payload before it was edited", payload(row.original_payload)) : null,
        panel("Headers", headers(row.headers)),
        panel("Failed attempts", attempts(row.history)),
        await story(`dead-letter:${row.id}`, context.signal)),
      h("aside", { class: "side-part", "aria-label": "Facts" }, panel(null, side))));
}

/** The row of a retried dead letter: its state, until that is final. */
function outcome(context, row) {
  if (row.origin === "process") return null;
  const words = { DISPATCHED: "delivered", PROCESSED: "handled" };
  const place = h("span", { "aria-live": "polite" }, "…");
  let again = null;
  const look = async () => {
    try {
      const now = await get(`/${row.origin}/${row.origin_id}`, { signal: context.signal });
      replace(place, status(now.status, words[now.status]));
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

function held({ backlog, msg_key: key }) {
  const title = backlog ? `${plural(backlog, "row waits", "rows wait")} behind it` : "Its key is held back";
  return notice("warn", title, `Messages of the key ${key} go on when this one is replayed or discarded.${backlog ? "" : " None has come since."}`);
}

/** The payload, and a field to fix it: validated with the real handler before it is saved. */
function editor(context, row, path, allowed) {
  const place = h("div");
  const look = () => {
    const shown = payload(row.payload, { truncated: row.payload_truncated, size: row.payload_bytes, download: `/api/v1${path}/payload` });
    replace(place, shown, offer());
  };
  // A part must not be kept in the place of the whole.
  const offer = () => {
    if (!allowed) return null;
    if (row.payload_truncated) return h("p", { class: "soft under" }, "It is too large to be edited here: use ", h("code", null, `relais dead-letter edit ${row.id}`), ".");
    return h("div", { class: "under" }, button("Edit the payload", edit, { picture: "audit" }));
  };
  const edit = () => {
    const field = h("textarea", { class: "editor", id: "payload", rows: "14", spellcheck: "false", value: laidOut(row.payload ?? "") });
    const result = h("div", { "aria-live": "polite" });
    const body = (who, flags) => {
      // The payload is put in as it was written: its numbers are nobody's to round.
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
          ? notice("ok", "Valid JSON", "Whether the destination accepts it is known when it is sent again. Nothing was changed.")
          : notice("ok", "The message would be handled", "Routes, handler or process accept this payload. Nothing was changed."));
      } catch (problem) {
        replace(result, problem.status === 422 ? notice("bad", "It would fail again", problem.message) : problemNotice(problem));
      }
    };
    const force = h("input", { type: "checkbox", id: "force" });
    const save = () => {
      if (!checked()) return;
      const decision = decide({
        title: "Keep this payload",
        text: force.checked ? "It is saved even if the validation fails. It stays a dead letter until you replay it." : "It is validated first and saved only if that succeeds. It stays a dead letter until you replay it.",
        confirm: "Keep",
        act: (who) => postText(`${path}/edit`, body(who, { force: force.checked })),
      });
      settle(context, decision, "The new payload is kept. Replay it when you are ready.");
    };
    let saved = false;
    const saveAndRetry = () => {
      if (!checked()) return;
      const decision = decide({
        title: "Save this payload and retry",
        text: force.checked ? "It is saved even if the validation fails, and sent again at once." : "It is validated first. Only if that succeeds, it is saved and sent again at once.",
        confirm: "Save and retry",
        act: async (who) => {
          // After a retry that failed only the retry is left to do.
          if (!saved) await postText(`${path}/edit`, body(who, { force: force.checked }));
          saved = true;
          return post(`${path}/replay`, who);
        },
      });
      settle(context, decision, "Saved. The message is sent again.");
    };
    const reformat = () => (field.value = laidOut(field.value));
    replace(place,
      h("label", { for: "payload", class: "hidden-words" }, "Payload"), field, result,
      h("div", { class: "under" },
        button("Validate", validate, { picture: "run" }), button("Save and retry", saveAndRetry, { kind: "primary", picture: "retry" }), button("Keep", save), button("Lay out", reformat), button("Cancel", look),
        h("label", { class: "check" }, force, "save it even if the validation fails")));
    field.focus();
  };
  look();
  return panel("Payload", place);
}
