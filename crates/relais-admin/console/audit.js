// Who did what, when and why.

import { h } from "./dom.js";
import { moment } from "./format.js";
import { code } from "./parts.js";
import { listPage } from "./table.js";

export function list(context) {
  return listPage(context, {
    title: "Audit",
    about: "What people did about messages, newest first. What was done to a process is in its log.",
    base: "#/audit",
    path: "/audit",
    filters: [{ name: "actor", label: "Who" }, { name: "target", label: "About", hint: "an id" }],
    columns: [
      { title: "When", cell: (row) => moment(row.at) },
      { title: "Who", cell: (row) => row.actor },
      { title: "What", cell: (row) => row.action },
      { title: "About", cell: (row) => h("a", { href: `#/explain/${encodeURIComponent(row.target)}` }, code(row.target)) },
      { title: "Why", cell: (row) => row.reason, kind: "wide" },
    ],
    key: (row) => row.id,
    empty: ["Nobody has decided anything yet", "Each replay, edit, discard, release and repair is recorded here with who and why."],
  });
}
