// The first page: the flow, what needs a person, charts of the last minutes, and the workers.

import { h, icon, replace, setText } from "./dom.js";
import { get } from "./api.js";
import { brief, count, milliseconds, rate } from "./format.js";
import { empty, heading, status, worker } from "./parts.js";
import { lineChart, sparkline } from "./chart.js";
import { flow } from "./flow.js";
import * as live from "./live.js";

/** As the server keeps: 15 minutes of seconds. */
const POINTS_MAX = 900;

export async function page(context) {
  const [first, history] = await Promise.all([live.overview ?? get("/overview", { signal: context.signal }), get("/history", { signal: context.signal })]);
  const past = new Past(history);
  const picture = flow();
  const charts = makeCharts();
  const tiles = makeTiles();
  const workers = h("div");
  const about = h("p", { class: "about" });

  const showOverview = (overview) => {
    if (!about.firstChild) replace(about, `relais ${overview.version} · ${overview.store}`, overview.worker ? [" · worker ", worker(overview.worker)] : null);
    picture.update(overview, live.rates, past.last());
    tiles.overview(overview);
    replace(workers, workerTable(overview.workers ?? []));
  };
  const showSample = () => {
    for (const chart of charts) chart.update(past.history());
    tiles.sample(past);
  };

  context.leave(live.on("overview", showOverview));
  context.leave(live.on("sample", (sample) => {
    past.add(sample);
    showSample();
  }));
  context.leave(() => {
    picture.stop();
    for (const chart of charts) chart.stop();
  });
  const head = heading("Overview");
  head.firstChild.append(about);
  showOverview(first);
  // Sizes are known only once it stands in the page.
  context.shown(() => {
    showOverview(live.overview ?? first);
    showSample();
  });
  return h("div", { class: "page" }, head, tiles.element,
    h("section", { class: "panel", "aria-labelledby": "flow-title" }, h("h2", { id: "flow-title" }, "Flow"), picture.element),
    h("div", { class: "charts" }, charts.map((chart) => chart.element)),
    h("section", { class: "panel", "aria-labelledby": "workers-title" }, h("h2", { id: "workers-title" }, "Workers"), workers));
}

/** The series of the last minutes, by this machine's clock. */
class Past {
  constructor({ every_ms, series }) {
    this.every = every_ms;
    this.series = Object.fromEntries(Object.entries(series).map(([name, values]) => [name, [...values]]));
    this.end = Date.now();
  }

  add(sample) {
    // A calm relais tells less often: the time between two samples is measured here.
    const steps = Math.max(1, Math.min(Math.round((Date.now() - this.end) / this.every), POINTS_MAX));
    this.end += steps * this.every;
    for (const [name, values] of Object.entries(this.series)) {
      // Between two samples nothing happened, or nobody looked: the newer one stands for both.
      for (let step = 0; step < steps; step += 1) values.push(sample[name] ?? null);
      if (values.length > POINTS_MAX) values.splice(0, values.length - POINTS_MAX);
    }
  }

  last() {
    return Object.fromEntries(Object.entries(this.series).map(([name, values]) => [name, values.at(-1) ?? null]));
  }

  history() {
    return { every_ms: this.every, end: this.end, series: this.series };
  }
}

function makeCharts() {
  return [
    lineChart({ title: "Throughput", about: "Messages a second of this worker.", format: rate, lines: [{ name: "dispatched", label: "delivered" }, { name: "stored", label: "received" }, { name: "processed", label: "handled" }] }),
    lineChart({ title: "Waiting", about: "Rows that wait in the inbox and in the outbox.", format: brief, lines: [{ name: "outbox_depth", label: "outbox" }, { name: "inbox_depth", label: "inbox" }] }),
    lineChart({ title: "Latency", about: "From the outbox row to the acknowledgement.", format: milliseconds, lines: [{ name: "latency_p95_ms", label: "p95" }, { name: "latency_p50_ms", label: "p50" }] }),
    lineChart({ title: "Trouble", about: "Attempts a second that are to be retried, and messages that failed for good.", format: rate, lines: [{ name: "retried", label: "retried" }, { name: "failed", label: "failed" }] }),
  ];
}

/** Numbers to see first: what flows, then what needs a person. */
function makeTiles() {
  const flowing = [["received", "stored", "per s", rate], ["delivered", "dispatched", "per s", rate], ["latency p95", "latency_p95_ms", "", milliseconds]].map(([label, series, unit, format]) => {
    const value = h("span", { class: "tile-value" }, "–");
    const line = sparkline();
    const element = h("div", { class: "tile" }, h("span", { class: "tile-label" }, label), h("div", { class: "tile-line" }, value, h("span", { class: "soft" }, unit)), line.element);
    return { element, series, update(past) {
      setText(value, format(past.series[series]?.at(-1) ?? null));
      line.update(past.series[series]);
    } };
  });
  const needs = [
    ["dead letters", "#/dead-letters", (overview) => overview.dead_letters_open],
    ["parked keys", "#/parked-keys", (overview) => overview.parked_keys],
    ["unreadable", "#/repair", (overview) => overview.serde_errors ?? 0],
    ["paused", "#/processes?status=paused", (overview) => overview.processes?.find((entry) => entry.name === "PAUSED")?.rows ?? 0],
  ].map(([label, href, read]) => {
    const value = h("span", { class: "tile-value" }, "–");
    const word = h("span", { class: "tile-word" });
    const element = h("a", { class: "tile", href }, h("span", { class: "tile-label" }, label), h("div", { class: "tile-line" }, value), word);
    return { element, update(overview) {
      const number = read(overview) ?? 0;
      setText(value, brief(number));
      value.title = count(number);
      element.classList.toggle("attention", number > 0);
      const words = number > 0 ? "needs you" : "all clear";
      if (word.textContent !== words) replace(word, icon(number > 0 ? "alert" : "ok"), words);
    } };
  });
  return {
    element: h("div", { class: "tiles" }, [...flowing, ...needs].map((tile) => tile.element)),
    overview: (overview) => needs.forEach((tile) => tile.update(overview)),
    sample: (past) => flowing.forEach((tile) => tile.update(past)),
  };
}

function workerTable(workers) {
  if (!workers.length) return empty("No worker holds a lane", "They appear as soon as a relais works on this database: start one with `relais run`.");
  const rows = workers.map((row) => h("tr", null,
    h("td", { data: { label: "Scope" } }, row.scope),
    h("td", { data: { label: "Worker" } }, worker(row.worker)),
    h("td", { class: "numeric", data: { label: "Lanes" } }, count(row.lanes)),
    h("td", { data: { label: "State" } }, row.alive ? status("closed", "alive") : status("FAILED", "lease run out"))));
  const head = ["Scope", "Worker", "Lanes", "State"].map((title) => h("th", { scope: "col", class: title === "Lanes" ? "numeric" : "" }, title));
  return h("div", { class: "scroll" }, h("table", { class: "rows" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}
