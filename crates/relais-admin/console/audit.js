// Who did what, when and why.

import { h } from "./dom.js";
import { moment } from "./format.js";
import { code } from "./parts.js";
import { listPage } from "./table.js";

export function list(context) {
  return listPage(context, {
    title: "Audit",
    about: "What operators did to messages and processes, newest first.",
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
    empty: ["No operator has decided anything yet", "Each action on a message or a process is recorded here with who and why."],
  });
}
