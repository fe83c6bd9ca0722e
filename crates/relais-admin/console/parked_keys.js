// Keys held back behind a dead letter, and letting them go on.

import { h } from "./dom.js";
import { may, post } from "./api.js";
import { ago, count } from "./format.js";
import { button, code } from "./parts.js";
import { listPage } from "./table.js";
import { decide, settle } from "./dialog.js";

export function list(context) {
  return listPage(context, {
    title: "Parked keys",
    about: "Keys whose later rows wait behind a dead letter, so that their order holds. Longest held first.",
    base: "#/parked-keys",
    path: "/parked-keys",
    filters: [],
    extra: { limit: 500 },
    columns: [
      { title: "Key", cell: (row) => row.msg_key },
      { title: "Where", cell: (row) => (row.origin === "outbox" ? `to ${row.destination}` : "inbox") },
      { title: "Waiting", cell: (row) => count(row.backlog), kind: "numeric" },
      { title: "Held", cell: (row) => ago(row.parked_at) },
      { title: "Behind", cell: (row) => h("a", { href: `#/dead-letters/${row.dead_letter_id}` }, code(row.dead_letter_id)) },
      ...(may("operator") ? [{ title: "Decide", cell: (row) => decisions(context, row), kind: "row-actions" }] : []),
    ],
    key: (row) => `${row.origin}/${row.destination ?? ""}/${row.msg_key}`,
    href: (row) => `#/dead-letters/${row.dead_letter_id}`,
    empty: ["No key is held back", "When a message fails for good, later messages of its key wait, and the key appears here."],
  });
}

function decisions(context, row) {
  const body = { origin: row.origin, key: row.msg_key, ...(row.destination ? { destination: row.destination } : {}) };
  const ask = (action, title, text, confirm, danger) => () => {
    const decision = decide({ title, text, confirm, danger, act: (who) => post(`/parked-keys/${action}`, { ...body, ...who }) });
    settle(context, decision, (answer) => `${count(answer.done)} done, ${count(answer.unchanged)} unchanged, ${count(answer.refused)} refused.`);
  };
  return h("div", { class: "buttons" },
    button("Release", ask("release", `Release the key ${row.msg_key}`, "Everything dead of this key is replayed in order; then the key goes on.", "Release", false), { picture: "retry" }),
    button("Skip", ask("skip", `Skip what is dead of ${row.msg_key}`, "Everything dead of this key is discarded; then the key goes on without it. This cannot be undone.", "Skip", true), { kind: "quiet-danger", picture: "skip" }));
}
