// What could not be read: the list, and one row with its bytes, an editor, and a second reading.

import { h, replace } from "./dom.js";
import { get, may, post } from "./api.js";
import { ago, bytes, count, moment } from "./format.js";
import { button, copyable, facts, heading, headers, notice, panel, problemNotice, status, toast } from "./parts.js";
import { jsonProblem, laidOut } from "./json_text.js";
import { SINCE, listPage } from "./table.js";
import { actor, decide, settle } from "./dialog.js";
import { decodeBase64, hexView } from "./hex.js";
import { refresh } from "./live.js";

export function list(context) {
  return listPage(context, {
    title: "Repair",
    about: "Messages whose bytes are not what their source declares. They are kept as they came; a second reading sets them going.",
    base: "#/repair",
    path: "/serde-errors",
    filters: [{ name: "source", label: "Source" }, { name: "code", label: "Code" }, { name: "key", label: "Key" }, SINCE],
    columns: [
      { title: "Row", cell: (row) => `${row.id}`, kind: "numeric" },
      { title: "Source", cell: (row) => row.source },
      { title: "Where", cell: (row) => [row.topic, row.partition, row.offset].filter((part) => part !== null).join(" · ") },
      { title: "Problem", cell: (row) => [h("code", null, row.code ?? "–"), " ", row.message ?? ""], kind: "wide" },
      { title: "Size", cell: (row) => bytes(row.bytes), kind: "numeric" },
      { title: "Received", cell: (row) => ago(row.received_at) },
    ],
    key: (row) => row.id,
    href: (row) => `#/repair/${row.id}`,
    empty: ["Everything could be read", "A message that is not what its source declares (no JSON, a broken Avro record) is kept here with its bytes."],
    actions: (values) => (may("operator") ? [button("Read all shown again", () => again(context, values), { picture: "retry" })] : []),
  });
}

/** A second reading of everything the filters show, with the decoders declared now. */
async function again(context, values) {
  const filter = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "").map(([name, value]) => [name, name === "since_seconds" ? Number(value) : value]));
  const chosen = Object.keys(filter).length ? { filter } : { all: true };
  const body = (who, dry_run) => ({ ...chosen, dry_run, ...who });
  try {
    const tried = await post("/serde-errors/repair", body({ actor: actor(), reason: "preview" }, true));
    const answer = await decide({
      title: "Read again",
      text: "With the decoders as they are declared now. This is what would come of it:",
      preview: h("p", { class: "preview" }, h("strong", null, summary(tried))),
      confirm: "Read again",
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
  const words = [["repaired", "repaired"], ["duplicates", "duplicates"], ["conflicts", "conflicts"], ["unreadable", "still unreadable"], ["refused", "refused"]];
  return words.filter(([name], index) => index === 0 || answer[name]).map(([name, word]) => `${count(answer[name] ?? 0)} ${word}`).join(", ");
}

export async function show(context) {
  const path = `/serde-errors/${encodeURIComponent(context.params[0])}`;
  const row = await get(path, { signal: context.signal });
  const discard = () => settle(context, decide({
    title: "Discard this message",
    text: "It is closed as failed and will not be handled. Its bytes stay with the row until they are cleaned up. This cannot be undone.",
    confirm: "Discard",
    danger: true,
    act: (who) => post(`${path}/discard`, who),
  }), "Discarded.");
  const open = row.status === "SERDE_ERROR";
  const side = facts([
    ["Status", status(row.status, open ? "unreadable" : undefined)],
    ["Source", row.source],
    ["Topic", row.topic],
    ["Partition and offset", row.partition === null ? null : `${row.partition} · ${row.offset}`],
    ["Message id", copyable(row.message_id)],
    ["Key", copyable(row.key)],
    ["Stage", row.stage],
    ["Size", bytes(row.bytes)],
    ["Received", moment(row.received_at)],
  ]);
  const raw = decodeBase64(row.base64 ?? "");
  const cut = row.truncated;
  return h("div", { class: "page" },
    heading("Unreadable message", ["Inbox row ", h("strong", null, String(row.id))], open && may("operator") ? [button("Discard", discard, { kind: "quiet-danger", picture: "bad" })] : []),
    panel("Why it could not be read", h("p", { class: "error-text" }, h("code", null, row.code ?? ""), " ", row.message ?? "")),
    open ? null : notice("ok", "It is no longer unreadable", "It was repaired or closed. The bytes are as they came."),
    cut ? notice("warn", "Only the beginning is shown", `The message has ${bytes(row.bytes)}; the first ${bytes(raw.length)} are below.`) : null,
    h("div", { class: "pair" },
      panel("Bytes", hexView(raw)),
      panel("Text", h("pre", { class: "payload", tabindex: "0", "aria-label": "The bytes as text" }, row.text ?? ""))),
    h("div", { class: "split" },
      h("div", { class: "main-part" }, open && may("operator") ? mend(context, row, path, cut) : null, panel("Headers", headers(row.headers))),
      h("aside", { class: "side-part", "aria-label": "Facts" }, panel(null, side))));
}

/** What a second reading would make of it, in words. */
function outcome(answer) {
  if (answer.result === "duplicate") return notice("warn", "It would be a duplicate", `Inbox row ${answer.of} is the same message and would stand for both.`);
  return notice("ok", "It would be repaired", `Message ${answer.message_id}, type ${answer.event_type ?? "none"}, key ${answer.key}. It would go on like any other.`);
}

/** Two ways: write by hand what it should have said, or read the bytes again. */
function mend(context, row, path, cut) {
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
      replace(result, problem.status === 422 ? notice("bad", "It would not be repaired", problem.message) : problemNotice(problem));
    }
  };
  const repair = (fix, text) => () => {
    if (!checked(fix())) return;
    const decision = decide({ title: "Repair this message", text, confirm: "Repair", act: (who) => post(`${path}/repair`, { ...fix(), keep_id: keep.checked, ...who }) });
    settle(context, decision, (answer) => (answer.result === "duplicate" ? "It was a duplicate and is closed." : "Repaired. It goes on like any other."));
  };
  const declared = () => ({});
  const others = (row.readable_by ?? []).map((name) => button(`Read it as ${name}`, repair(() => ({ decoder: name }), `It is read as ${name}, whatever its source declares.`), { picture: "retry" }));
  const written = may("admin")
    ? [h("div", { class: "field" }, h("label", { for: "payload" }, "What it should have said, as JSON"), field),
       h("div", { class: "under" },
         button("Try it", attempt(byHand), { picture: "run" }),
         button("Repair with this text", repair(byHand, "The text becomes its payload. The original bytes stay with the row."), { kind: "primary", picture: "ok" }),
         button("Lay out", () => (field.value = laidOut(field.value))),
         h("label", { class: "check" }, keep, "keep the id it has"))]
    : h("p", { class: "soft" }, "To write a payload by hand you need the role admin. You can let it be read again.");
  return panel("Repair", written, result,
    h("div", { class: "under again" },
      h("span", { class: "soft" }, "After a fix of the source's settings:"),
      button("Try a second reading", attempt(declared), { picture: "run" }),
      button("Read it again", repair(declared, "It is read with the decoder its source declares now."), { picture: "retry" }),
      others));
}
