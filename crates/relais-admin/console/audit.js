// The audit log: actor, action, target, time and reason.

import { moment } from "./format.js";
import { trace } from "./parts.js";
import { listPage } from "./table.js";

export function list(context) {
  return listPage(context, {
    title: "Audit",
    about: "Actions of operators on messages, processes, destinations and sources, newest first.",
    base: "#/audit",
    path: "/audit",
    filters: [{ name: "actor", label: "Actor" }, { name: "target", label: "Target", hint: "an ID" }],
    columns: [
      { title: "Time", cell: (row) => moment(row.at) },
      { title: "Actor", cell: (row) => row.actor },
      { title: "Action", cell: (row) => row.action },
      { title: "Target", cell: (row) => trace(row.target) },
      { title: "Reason", cell: (row) => row.reason, kind: "wide" },
    ],
    key: (row) => row.id,
    empty: ["No actions yet", "Every action of an operator is recorded here with actor and reason."],
  });
}
