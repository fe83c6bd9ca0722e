// Sources: all of them with search and sort, and one with its figures and what can be done.

import { h } from "./dom.js";
import { may, query } from "./api.js";
import { ago, brief, count, rate } from "./format.js";
import { empty, facts, heading, notice, panel, status } from "./parts.js";
import { sources } from "./state.js";
import { gridPage } from "./grid.js";
import { follow, pauseButton } from "./dialog.js";
import { configuration } from "./configuration.js";
import { current } from "./live.js";

export function list(context) {
  return gridPage(context, {
    title: "Sources",
    about: "Systems that messages come from. Figures of all processes together.",
    base: "#/sources",
    noun: ["source", "sources"],
    rows: sources,
    key: (row) => row.name,
    text: (row) => `${row.name} ${row.source.kind ?? ""}`,
    filters: [["", "all", () => true], ["attention", "needs attention", (row) => row.state.attention], ["paused", "paused", (row) => row.source.pause]],
    sort: "State",
    columns: [
      { title: "Source", cell: (row) => row.name, by: (row) => row.name },
      { title: "State", cell: (row) => status(row.state.look, row.state.words), by: (row) => row.state.rank },
      { title: "Kind", cell: (row) => row.source.kind ?? "–", by: (row) => row.source.kind ?? "" },
      { title: "Per s", cell: (row) => rate(row.source.per_second ?? 0), by: (row) => row.source.per_second ?? 0, kind: "numeric" },
      { title: "Received", cell: (row) => brief(row.source.stored), by: (row) => row.source.stored, kind: "numeric" },
      { title: "Duplicates", cell: (row) => brief(row.source.duplicates), by: (row) => row.source.duplicates, kind: "numeric" },
      { title: "Undecodable", cell: (row) => brief(row.source.undecodable), by: (row) => row.source.undecodable, kind: "numeric" },
      { title: "Lag", cell: (row) => (row.source.lag === null ? "–" : brief(row.source.lag)), by: (row) => row.source.lag ?? -1, kind: "numeric" },
      { title: "Last message", cell: (row) => (row.source.last_received_at ? ago(row.source.last_received_at) : "–"), by: (row) => row.source.last_received_at ?? "" },
    ],
    href: (row) => `#/sources/${encodeURIComponent(row.name)}`,
    empty: ["No source is configured", "Rows come from your own transactions. Add a [[source]] to relais.toml to receive messages."],
  });
}

export async function show(context) {
  const name = context.params[0];
  const find = (overview) => sources(overview).find((one) => one.name === name);
  const row = find(await current(context));
  if (!row) return h("div", { class: "page" }, heading(name), empty("No source has this name", "See the list of sources."));
  follow(context, row, find, (one) => JSON.stringify([one.state, one.source.stored, one.source.lag, one.source.pause]));
  const { source, state } = row;
  return h("div", { class: "page" },
    heading(name, [source.kind ? `${source.kind} · ` : "", h("a", { href: `#/audit${query({ target: name })}` }, "Audit")], may("operator") ? [toggle(context, name, source)] : []),
    state.attention ? notice(state.tone, state.words[0].toUpperCase() + state.words.slice(1), state.lines[0]) : null,
    panel("Figures", facts([
      ["State", status(state.look, state.words)],
      ["Paused", source.pause ? [ago(source.pause.at), ` by ${source.pause.by}`] : null],
      ["Received each second", rate(source.per_second ?? 0)],
      ["Received since start", count(source.stored)],
      ["Duplicates", count(source.duplicates)],
      ["Conflicts", count(source.conflicts)],
      ["Undecodable", count(source.undecodable)],
      ["Lag", source.lag === null ? null : count(source.lag)],
      ["Lost at the source", count((source.missed ?? 0) + (source.recreated ?? 0))],
      ["Last message", source.last_received_at ? ago(source.last_received_at) : "none yet"],
      ["Last error", source.away],
    ])),
    await configuration(`/sources/${encodeURIComponent(name)}`, context.signal));
}

function toggle(context, name, source) {
  const path = `/sources/${encodeURIComponent(name)}`;
  const waits = source.kind === "http" ? "Senders get 503 with Retry-After and send again later." : "The broker keeps its messages.";
  return pauseButton(context, path, { name, pause: source.pause }, `No process reads from it until it is resumed, also after a restart. ${waits}`, "All processes read from it again.");
}
