// Processes that run relais, with the lanes that each of them has leased.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { code, copyable, empty, heading, notice, panel, plainTable, soft, split, status } from "./parts.js";
import { instances } from "./state.js";
import { gridPage } from "./grid.js";
import { follow } from "./dialog.js";
import { current } from "./live.js";

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
      { title: "Process", cell: title, by: (row) => `${row.instance.host ?? ""} ${row.name}` },
      { title: "State", cell: (row) => status(row.state.look, row.here ? `${row.state.words}, this one` : row.state.words), by: (row) => row.state.rank },
      { title: "Version", cell: (row) => row.instance.version ?? "–", by: (row) => row.instance.version ?? "" },
      { title: "Started", cell: (row) => (row.instance.started_at ? ago(row.instance.started_at) : "–"), by: (row) => row.instance.started_at ?? "" },
      { title: "Last heartbeat", cell: (row) => (row.instance.reported_at ? ago(row.instance.reported_at) : "–"), by: (row) => row.instance.reported_at ?? "" },
      { title: "Lanes", cell: (row) => count(row.lanes), by: (row) => row.lanes, kind: "numeric" },
      { title: "Serves", cell: (row) => row.scopes.map((scope) => scope.scope).sort().join(", ") || "–", by: (row) => row.scopes.length, kind: "wide" },
    ],
    href: (row) => `#/workers/${encodeURIComponent(row.name)}`,
    empty: ["No process of relais is running", "Start one with `relais run`. It appears here within a second."],
  });
}

/** One process: the lanes of each scope that it serves. */
export async function show(context) {
  const name = context.params[0];
  const find = (overview) => instances(overview).find((one) => one.name === name);
  const row = find(await current(context));
  if (!row) return h("div", { class: "page" }, heading("Worker"), empty("No process has this name", "It has stopped, or it was lost more than ten minutes ago. See the list of workers."));
  follow(context, row, find, (one) => JSON.stringify([one.state.words, one.scopes, one.instance.reported_at]));
  const { instance, state } = row;
  return h("div", { class: "page" },
    heading(title(row), row.here ? "The process that serves this console." : null),
    state.attention ? notice(state.tone, "This worker is lost", `${state.lines[0]} Other processes take over its lanes.`) : null,
    split(panel("Leased lanes", scopes(row)), [
        ["State", status(state.look, state.words)],
        ["Worker id", copyable(row.name)],
        ["Host", instance.host],
        ["Process id", instance.pid],
        ["Version", instance.version],
        ["Started", instance.started_at ? ago(instance.started_at) : null],
        ["Last heartbeat", instance.reported_at ? ago(instance.reported_at) : null],
        ["Lanes", count(row.lanes)],
      ]));
}

function title({ name, instance }) {
  return instance.host ? `${instance.host} · ${instance.pid}` : name;
}

function scopes({ scopes: all }) {
  if (!all.length) return soft("It serves no inbox and no destination yet.");
  const sorted = [...all].sort((left, right) => left.scope.localeCompare(right.scope));
  return plainTable(["Scope", "Lanes"], sorted.map((scope) => [code(scope.scope), count(scope.lanes)]));
}

