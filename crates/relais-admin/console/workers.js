// Processes that run relais, with the lanes that each of them has leased.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { status, worker } from "./parts.js";
import { instances } from "./state.js";
import { gridPage } from "./grid.js";

export function list(context) {
  return gridPage(context, {
    title: "Workers",
    about: "One line per process of relais on this database. A lost process is shown for ten minutes.",
    base: "#/workers",
    noun: ["process", "processes"],
    rows: instances,
    key: (row) => row.name,
    text: (row) => `${row.name} ${row.instance.host ?? ""} ${row.scopes.map((scope) => scope.scope).join(" ")}`,
    filters: [["", "all", () => true], ["alive", "alive", (row) => row.instance.alive], ["lost", "lost", (row) => !row.instance.alive]],
    sort: "State",
    columns: [
      { title: "Process", cell: (row) => (row.instance.host ? `${row.instance.host} · ${row.instance.pid}` : worker(row.name)), by: (row) => `${row.instance.host ?? ""} ${row.name}` },
      { title: "State", cell: (row) => status(row.state.look, row.here ? `${row.state.words}, this one` : row.state.words), by: (row) => row.state.rank },
      { title: "Version", cell: (row) => row.instance.version ?? "–", by: (row) => row.instance.version ?? "" },
      { title: "Started", cell: (row) => (row.instance.started_at ? ago(row.instance.started_at) : "–"), by: (row) => row.instance.started_at ?? "" },
      { title: "Last heartbeat", cell: (row) => (row.instance.reported_at ? ago(row.instance.reported_at) : "–"), by: (row) => row.instance.reported_at ?? "" },
      { title: "Lanes", cell: (row) => count(row.lanes), by: (row) => row.lanes, kind: "numeric" },
      { title: "Serves", cell: scopes, by: (row) => row.scopes.length },
    ],
    empty: ["No process of relais is running", "Start one with `relais run`. It appears here within a second."],
  });
}

/** The lanes of each scope, opened on demand because there may be hundreds. */
function scopes(row) {
  if (!row.scopes.length) return "–";
  const list = h("ul", { class: "scopes" }, row.scopes.map((scope) => h("li", null, `${scope.scope}: ${count(scope.lanes)} lanes`)));
  return h("details", null, h("summary", null, `${count(row.scopes.length)} scopes`), list);
}
