// Keys parked behind a dead letter, with the actions that release them.

import { h } from "./dom.js";
import { may, post } from "./api.js";
import { ago, count } from "./format.js";
import { button, code } from "./parts.js";
import { listPage } from "./table.js";
import { decide, settle } from "./dialog.js";

export function list(context) {
  return listPage(context, {
    title: "Parked keys",
    about: "Keys whose later messages wait behind a dead letter, so that order is kept. Longest parked first.",
    base: "#/parked-keys",
    path: "/parked-keys",
    filters: [],
    extra: { limit: 500 },
    columns: [
      { title: "Key", cell: (row) => row.msg_key },
      { title: "Where", cell: (row) => (row.origin === "outbox" ? `to ${row.destination}` : "inbox") },
      { title: "Waiting", cell: (row) => count(row.backlog), kind: "numeric" },
      { title: "Parked", cell: (row) => ago(row.parked_at) },
      { title: "Behind", cell: (row) => h("a", { href: `#/dead-letters/${row.dead_letter_id}` }, code(row.dead_letter_id)) },
      ...(may("operator") ? [{ title: "Actions", cell: (row) => decisions(context, row), kind: "row-actions" }] : []),
    ],
    key: (row) => `${row.origin}/${row.destination ?? ""}/${row.msg_key}`,
    href: (row) => `#/dead-letters/${row.dead_letter_id}`,
    empty: ["No parked keys", "When a message becomes a dead letter, later messages of its key wait, and the key appears here."],
  });
}

function decisions(context, row) {
  const body = { origin: row.origin, key: row.msg_key, ...(row.destination ? { destination: row.destination } : {}) };
  const ask = (action, title, text, confirm, danger) => () => {
    const decision = decide({ title, text, confirm, danger, act: (who) => post(`/parked-keys/${action}`, { ...body, ...who }) });
    settle(context, decision, (answer) => `${count(answer.done)} done, ${count(answer.unchanged)} unchanged, ${count(answer.refused)} refused.`);
  };
  return h("div", { class: "buttons" },
    button("Release", ask("release", `Release the key ${row.msg_key}`, "Retries all dead letters of this key in order. Then delivery of the key continues.", "Release", false), { picture: "retry" }),
    button("Discard", ask("skip", `Discard the dead letters of ${row.msg_key}`, "Discards all dead letters of this key. Then delivery of the key continues without them. This cannot be undone.", "Discard", true), { kind: "quiet-danger", picture: "skip" }));
}
