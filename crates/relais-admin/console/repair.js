// Undecodable messages: the list, and the detail page with the bytes, an editor and the actions to reprocess them.

import { h, replace } from "./dom.js";
import { get, may, post } from "./api.js";
import { ago, bytes, count, moment } from "./format.js";
import { button, copyable, errorText, heading, headers, notice, panel, problemNotice, soft, split, status, toast } from "./parts.js";
import { jsonProblem, formatted } from "./json_text.js";
import { SINCE, listPage } from "./table.js";
import { actor, decide, selection, settle } from "./dialog.js";
import { decodeBase64, hexView } from "./hex.js";
import { refresh } from "./live.js";

export function list(context) {
  return listPage(context, {
    title: "Repair",
    about: "Messages that could not be decoded. The raw bytes are kept: fix the decoder or the payload, then reprocess.",
    base: "#/repair",
    path: "/serde-errors",
    filters: [{ name: "source", label: "Source" }, { name: "code", label: "Code" }, { name: "key", label: "Key" }, SINCE],
    columns: [
      { title: "Row", cell: (row) => `${row.id}`, kind: "numeric" },
      { title: "Source", cell: (row) => row.source },
      { title: "Where", cell: (row) => [row.topic, row.partition, row.offset].filter((part) => part !== null).join(" · ") },
      { title: "Error", cell: (row) => [h("code", null, row.code ?? "–"), " ", row.message ?? ""], kind: "wide" },
      { title: "Size", cell: (row) => bytes(row.bytes), kind: "numeric" },
      { title: "Received", cell: (row) => ago(row.received_at) },
    ],
    key: (row) => row.id,
    href: (row) => `#/repair/${row.id}`,
    empty: ["No undecodable messages", "A message that its decoder rejects, such as invalid JSON, is kept here with its raw bytes."],
    actions: (values) => (may("operator") ? [button("Reprocess all matching", () => again(context, values), { picture: "retry" })] : []),
  });
}

/** Reprocesses all messages that match the filters, with the decoders configured now. */
async function again(context, values) {
  const body = (who, dry_run) => ({ ...selection(values), dry_run, ...who });
  try {
    const tried = await post("/serde-errors/repair", body({ actor: actor(), reason: "preview" }, true));
    const answer = await decide({
      title: "Reprocess all matching",
      text: "Decodes them again with the decoders configured now. Expected result:",
      preview: h("p", { class: "preview" }, h("strong", null, summary(tried))),
      confirm: "Reprocess",
      act: (who) => post("/serde-errors/repair", body(who, false)),
    });
    if (!answer) return;
    toast(`${summary(answer)}.`);
    refresh();
    context.reload();
  } catch (problem) {
    toast(`${problem.message} ${problem.advice ?? ""}`, "bad");
  }
}

function summary(answer) {
  const words = [["repaired", "reprocessed"], ["duplicates", "duplicates"], ["conflicts", "conflicts"], ["unreadable", "still undecodable"], ["refused", "refused"]];
  return words.filter(([name], index) => index === 0 || answer[name]).map(([name, word]) => `${count(answer[name] ?? 0)} ${word}`).join(", ");
}

export async function show(context) {
  const path = `/serde-errors/${encodeURIComponent(context.params[0])}`;
  const row = await get(path, { signal: context.signal });
  const discard = () => settle(context, decide({
    title: "Discard this message",
    text: "The message is closed as failed and will not be handled. Its bytes are kept until retention removes the row. This cannot be undone.",
    confirm: "Discard",
    danger: true,
    act: (who) => post(`${path}/discard`, who),
  }), "Discarded.");
  const open = row.status === "SERDE_ERROR";
  const side = [
    ["Status", status(row.status)],
    ["Source", row.source],
    ["Topic", row.topic],
    ["Partition and offset", row.partition === null ? null : `${row.partition} · ${row.offset}`],
    ["Message id", copyable(row.message_id)],
    ["Key", copyable(row.key)],
    ["Stage", row.stage],
    ["Size", bytes(row.bytes)],
    ["Received", moment(row.received_at)],
  ];
  const raw = decodeBase64(row.base64 ?? "");
  const cut = row.truncated;
  return h("div", { class: "page" },
    heading("Undecodable message", ["Inbox row ", h("strong", null, String(row.id))], open && may("operator") ? [button("Discard", discard, { kind: "quiet-danger", picture: "bad" })] : []),
    panel("Decoding error", errorText(row.code, row.message)),
    open ? null : notice("ok", "This message is resolved", "It was reprocessed or discarded. The raw bytes are unchanged."),
    cut ? notice("warn", "Only the beginning is shown", `The message has ${bytes(row.bytes)}; the first ${bytes(raw.length)} are below.`) : null,
    h("div", { class: "pair" },
      panel("Bytes", hexView(raw)),
      panel("Text", h("pre", { class: "payload", tabindex: "0", "aria-label": "The bytes as text" }, row.text ?? ""))),
    split([open && may("operator") ? fixPanel(context, row, path, cut) : null, panel("Headers", headers(row.headers))], side));
}

/** Describes the result of a test decode. */
function outcome(answer) {
  if (answer.result === "duplicate") return notice("warn", "Duplicate", `Inbox row ${answer.of} is the same message; this one would be closed.`);
  return notice("ok", "Decoding succeeds", `Message ${answer.message_id}, type ${answer.event_type ?? "none"}, key ${answer.key}. Nothing was changed.`);
}

/** The two ways to reprocess: with a corrected payload, or with the raw bytes and another decoder. */
function fixPanel(context, row, path, cut) {
  const field = h("textarea", { class: "editor", id: "payload", rows: "10", spellcheck: "false", value: cut ? "" : (row.text ?? "") });
  const keep = h("input", { type: "checkbox", id: "keep-id" });
  const result = h("div", { "aria-live": "polite" });
  const byHand = () => ({ payload: field.value });
  const checked = (fix) => {
    const wrong = fix.payload === undefined ? null : jsonProblem(fix.payload);
    if (wrong) replace(result, notice("bad", "This is not JSON", wrong));
    return !wrong;
  };
  const attempt = (fix) => async () => {
    if (!checked(fix())) return;
    try {
      replace(result, outcome(await post(`${path}/repair`, { ...fix(), keep_id: keep.checked, dry_run: true, actor: actor(), reason: "dry run" })));
    } catch (problem) {
      replace(result, problem.status === 422 ? notice("bad", "Decoding fails", problem.message) : problemNotice(problem));
    }
  };
  const repair = (fix, text) => () => {
    if (!checked(fix())) return;
    const decision = decide({ title: "Reprocess this message", text, confirm: "Reprocess", act: (who) => post(`${path}/repair`, { ...fix(), keep_id: keep.checked, ...who }) });
    settle(context, decision, (answer) => (answer.result === "duplicate" ? "The message was a duplicate and is closed." : "Reprocessed. The message will be handled."));
  };
  const declared = () => ({});
  const others = (row.readable_by ?? []).map((name) => button(`Decode as ${name}`, repair(() => ({ decoder: name }), `Decodes it as ${name} instead of with the decoder of its source.`), { picture: "retry" }));
  const written = may("admin")
    ? [h("div", { class: "field" }, h("label", { for: "payload" }, "Corrected payload (JSON)"), field),
       h("div", { class: "under" },
         button("Validate", attempt(byHand), { picture: "run" }),
         button("Reprocess with this payload", repair(byHand, "The corrected payload is used. The raw bytes are kept with the row."), { kind: "primary", picture: "ok" }),
         button("Format", () => (field.value = formatted(field.value))),
         h("label", { class: "check" }, keep, "Keep the current message ID"))]
    : soft("Changing a payload needs the role admin. You can reprocess the raw bytes.");
  return panel("Reprocess", written, result,
    h("div", { class: "under again" },
      h("span", { class: "soft" }, "After a change of the source's configuration:"),
      button("Test decode", attempt(declared), { picture: "run" }),
      button("Reprocess", repair(declared, "Decodes the raw bytes with the decoder that its source has now."), { picture: "retry" }),
      others));
}
