// The first page: items that need attention, the flow, and charts of the last minutes. It fits one screen for any
// number of destinations.

import { h, icon, replace, setText } from "./dom.js";
import { get } from "./api.js";
import { brief, count, milliseconds, plural, rate } from "./format.js";
import { heading, status } from "./parts.js";
import { lineChart, sparkline } from "./chart.js";
import { flow } from "./flow.js";
import { attention, instances } from "./state.js";
import * as live from "./live.js";

/** The length of the server's history: 15 minutes of one sample per second. */
const POINTS_MAX = 900;
/** Most items listed under "Needs attention"; the rest is one line with links. */
const ATTENTION_MAX = 4;
/** Most lines under "Needs attention" beside a flow with all its boxes. */
const LINES_ROOM = 2;

export async function page(context) {
  const [first, history] = await Promise.all([live.current(context), get("/history", { signal: context.signal })]);
  const past = new Past(history);
  const picture = flow();
  const charts = makeCharts();
  const tiles = makeTiles();
  const alarms = makeAttention();
  const about = h("p", { class: "about" });

  const showOverview = (overview) => {
    const alive = instances(overview).filter((one) => one.instance.alive).length;
    setText(about, `relais ${overview.version} · ${overview.store} · ${plural(alive, "process", "processes")}`);
    tiles.overview(overview);
    alarms.update(overview);
    // The page fits one screen: a long list and the banner of an outage leave less room for boxes.
    picture.update(overview, past.last(), (alarms.lines() > LINES_ROOM ? 1 : 0) + (live.isDown() ? 1 : 0));
  };
  const showSample = () => {
    for (const chart of charts) chart.update(past.history());
    tiles.sample(past);
  };

  context.leave(live.on("overview", showOverview));
  context.leave(live.on("state", () => showOverview(live.overview ?? first)));
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
  // Sizes are known only after the element is in the page.
  context.shown(() => {
    showOverview(live.overview ?? first);
    showSample();
  });
  return h("div", { class: "page overview" }, head, tiles.element, alarms.element,
    h("section", { class: "panel", "aria-labelledby": "flow-title" }, h("h2", { id: "flow-title", class: "hidden-words" }, "Flow"), picture.element),
    h("div", { class: "charts" }, charts.map((chart) => chart.element)));
}

/** The series of the last minutes, with times of the browser's clock. */
class Past {
  constructor({ every_ms, series }) {
    this.every = every_ms;
    this.series = Object.fromEntries(Object.entries(series).map(([name, values]) => [name, [...values]]));
    this.end = Date.now();
  }

  add(sample) {
    // An idle relais sends fewer samples, so the time between two samples is measured here.
    const steps = Math.max(1, Math.min(Math.round((Date.now() - this.end) / this.every), POINTS_MAX));
    this.end += steps * this.every;
    for (const [name, values] of Object.entries(this.series)) {
      // Missing samples between two get the value of the newer one.
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
    lineChart({ title: "Throughput", about: "Messages per second, all processes together.", format: rate, lines: [{ name: "dispatched", label: "delivered" }, { name: "stored", label: "received" }, { name: "processed", label: "handled" }] }),
    lineChart({ title: "Backlog", about: "Rows that wait in the inbox and in the outbox.", format: brief, lines: [{ name: "outbox_depth", label: "outbox" }, { name: "inbox_depth", label: "inbox" }] }),
    lineChart({ title: "Latency", about: "From the commit of the outbox row to its delivery.", format: milliseconds, lines: [{ name: "latency_p95_ms", label: "p95" }, { name: "latency_p50_ms", label: "p50" }] }),
    lineChart({ title: "Failures", about: "Failed attempts per second that will be retried, and new dead letters per second.", format: rate, lines: [{ name: "retried", label: "retried" }, { name: "failed", label: "dead letters" }] }),
  ];
}

/** The list of items that need attention. */
function makeAttention() {
  const list = h("ul", { class: "alarms" });
  const more = h("p", { class: "soft" });
  const element = h("section", { class: "panel needs", "aria-labelledby": "attention-title" }, h("h2", { id: "attention-title" }, "Needs attention"), h("div", null, list, more));
  let seen = "";
  return { element, lines: () => list.children.length + (more.children.length ? 1 : 0), update(overview) {
    const all = attention(overview);
    const text = JSON.stringify([all, live.isDown()]);
    if (text === seen) return;
    seen = text;
    replace(list, all.slice(0, ATTENTION_MAX).map((one) => h("li", null,
      status(one.state.look, one.state.words), h("span", { class: "soft" }, one.kind), separated(one.links), h("span", { class: "why soft", title: one.state.lines[0] }, one.state.lines[0] ?? ""))));
    replace(more, all.length ? hiddenItems(all.slice(ATTENTION_MAX)) : live.isDown() ? [icon("alert"), " Unknown: the figures are out of date."] : [icon("ok"), " No problems."]);
  } };
}

/** The line under the list: a link to each page of the items that are not shown. */
function hiddenItems(rest) {
  if (!rest.length) return null;
  const pages = [...new Map(rest.map((one) => one.page)).entries()];
  return [`and ${plural(rest.length, "more", "more")}:`, separated(pages)];
}

function separated(links) {
  return links.flatMap(([name, href], index) => [index ? h("span", { class: "soft", "aria-hidden": "true" }, "·") : null, h("a", { href, title: name }, name)]);
}

/** The key figures: throughput first, then items that need an operator. */
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
    ["undecodable", "#/repair", (overview) => overview.serde_errors ?? 0],
    ["stuck processes", "#/processes", (overview) => overview.processes_need_operator ?? 0],
  ].map(([label, href, read]) => {
    const value = h("span", { class: "tile-value" }, "–");
    const word = h("span", { class: "tile-word" });
    const element = h("a", { class: "tile", href }, h("span", { class: "tile-label" }, label), h("div", { class: "tile-line" }, value), word);
    return { element, update(overview) {
      const number = read(overview) ?? 0;
      setText(value, brief(number));
      value.title = count(number);
      element.classList.toggle("attention", number > 0);
      const words = number > 0 ? "needs attention" : "all clear";
      if (word.textContent !== words) replace(word, icon(number > 0 ? "alert" : "ok"), words);
    } };
  });
  return {
    element: h("div", { class: "tiles" }, [...flowing, ...needs].map((tile) => tile.element)),
    overview: (overview) => needs.forEach((tile) => tile.update(overview)),
    sample: (past) => flowing.forEach((tile) => tile.update(past)),
  };
}
