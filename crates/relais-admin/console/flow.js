// The flow diagram: sources, inbox, processes, outbox, destinations and the traffic between them.
// Boxes are created once and then updated in place, so that the focus stays and nothing flickers.

import { h, replace, s, setText } from "./dom.js";
import { age, brief, duration, plural, rate } from "./format.js";
import { status } from "./parts.js";
import * as state from "./state.js";

/** Most boxes of one column, worst first; the rest is one line that links to the full list. */
const BOXES_MAX = 3;

/** Finished rows of a table with more rows than this are estimated: `EXACT_COUNT_MAX` of the server. */
const EXACT_MAX = 20_000;

/** Builds the diagram; `update(overview, sample, less)` brings it up to date, with `less` fewer boxes in each column. */
export function flow() {
  const wires = s("svg", { class: "wires", "aria-hidden": "true" });
  const columns = ["Sources", "Inbox", "Processes", "Outbox", "Destinations"].map((title) => {
    const list = h("div", { class: "boxes" });
    return { list, element: h("section", { class: "column" }, h("h3", null, title), list) };
  });
  const element = h("div", { class: "flow" }, wires, columns.map((column) => column.element));
  const boxes = new Map();
  let drawn = null;

  const redraw = () => drawn && connect(element, wires, columns, drawn);
  const observer = new ResizeObserver(redraw);
  observer.observe(element);

  return {
    element,
    stop: () => observer.disconnect(),
    update(overview, sample, less = 0) {
      const wanted = [sources(overview), [inbox(overview, sample)], processes(overview), [outbox(overview, sample)], destinations(overview)];
      wanted.forEach((all, index) => place(columns[index].list, all, boxes, index, Math.max(BOXES_MAX - less, 1)));
      drawn = { sample, wanted };
      redraw();
    },
  };
}

/** Shows boxes in a column and keeps the existing elements. */
function place(list, all, boxes, column, most) {
  const shown = all.slice(0, most);
  const elements = shown.map((box) => {
    const key = `${column}/${box.name}`;
    if (!boxes.has(key)) boxes.set(key, makeBox(box));
    const made = boxes.get(key);
    made.update(box);
    return made.element;
  });
  if (all.length > most) elements.push(more(boxes, column, all[0].all, all.length - most));
  const same = elements.length === list.children.length && elements.every((element, index) => list.children[index] === element);
  if (!same) replace(list, elements);
}

/** The link under the boxes, created once so that the focus stays. */
function more(boxes, column, href, number) {
  const key = `${column}/more`;
  if (!boxes.has(key)) boxes.set(key, h("a", { class: "more", href }));
  const link = boxes.get(key);
  setText(link, `and ${plural(number, "more", "more")}`);
  return link;
}

function makeBox(first) {
  const head = h("div", { class: "box-head" });
  const numbers = h("dl", { class: "box-numbers" });
  const more = h("div", { class: "box-more" });
  const name = first.href ? h("a", { href: first.href }, first.name) : h("span", null, first.name);
  const element = h("article", { class: "box" }, h("div", { class: "box-top" }, h("h4", null, name), head), numbers, more);
  let seen = "";
  const cells = new Map();
  return {
    element,
    update(box) {
      element.dataset.tone = box.tone ?? "";
      for (const [label, value] of box.numbers) {
        if (!cells.has(label)) {
          const cell = h("dd");
          cells.set(label, cell);
          numbers.append(h("div", null, h("dt", null, label), cell));
        }
        setText(cells.get(label), value);
      }
      const text = JSON.stringify(box.state ?? null);
      if (text !== seen) {
        seen = text;
        replace(head, box.state?.kind ? h("span", { class: "soft" }, box.state.kind) : null, box.state?.status ? status(...box.state.status) : null);
        replace(more, (box.state?.lines ?? []).map((line) => h("p", { title: line }, line)), box.state?.budget ? budget(box.state.budget) : null);
      }
    },
  };
}

function byRank(left, right) {
  return left.state.rank - right.state.rank || left.name.localeCompare(right.name);
}

function sources(overview) {
  const all = state.sources(overview).sort(byRank);
  if (!all.length) return [{ name: "none", numbers: [], state: { lines: ["No [[source]] is configured; rows come from your own transactions."] } }];
  return all.map(({ name, source, state: now }) => ({
    name,
    href: `#/sources/${encodeURIComponent(name)}`,
    all: "#/sources",
    numbers: [["per s", rate(source.per_second)], ["received", brief(source.stored)]],
    tone: now.attention ? now.tone : "",
    state: { kind: source.kind, status: [now.look, now.words], lines: now.lines },
  }));
}

function rowsOf(counts, name) {
  return counts?.find((entry) => entry.name === name)?.rows ?? 0;
}

/** The number of finished rows; `≈` marks an estimate. */
function finished(counts, name) {
  const all = (counts ?? []).reduce((sum, entry) => sum + entry.rows, 0);
  return `${all > EXACT_MAX ? "≈ " : ""}${brief(rowsOf(counts, name))}`;
}

function oldest(text) {
  return text ? duration(age(text)) : "–";
}

function inbox(overview, sample) {
  const waiting = rowsOf(overview.inbox, "RECEIVED") + rowsOf(overview.inbox, "RETRY");
  const undecodable = overview.serde_errors ?? rowsOf(overview.inbox, "SERDE_ERROR");
  return {
    name: "Messages received",
    href: "#/inbox",
    numbers: [["per s", rate(sample?.stored)], ["waiting", brief(waiting)], ["oldest", oldest(overview.inbox_oldest)], ["handled", finished(overview.inbox, "PROCESSED")]],
    tone: undecodable ? "bad" : "",
    state: { status: undecodable ? ["SERDE_ERROR", plural(undecodable, "undecodable", "undecodable")] : null },
  };
}

function processes(overview) {
  const at = (name) => rowsOf(overview.processes, name);
  const stuck = overview.processes_need_operator ?? 0;
  const paused = at("PAUSED");
  return [{
    name: "Processes",
    href: "#/processes",
    numbers: [["running", brief(at("RUNNING"))], ["compensating", brief(at("COMPENSATING"))], ["succeeded", finished(overview.processes, "SUCCEEDED")], ["timers due", brief(overview.timers_due)]],
    tone: stuck ? "bad" : paused ? "warn" : "",
    state: { status: stuck ? ["COMPENSATION_FAILED", plural(stuck, "needs an operator", "need an operator")] : paused ? ["PAUSED", plural(paused, "paused", "paused")] : null },
  }];
}

function outbox(overview, sample) {
  const failed = rowsOf(overview.outbox, "FAILED");
  const times = (overview.backlogs ?? []).map((backlog) => backlog.oldest).filter(Boolean).sort();
  return {
    name: "Messages to send",
    href: "#/outbox",
    numbers: [["per s", rate(sample?.dispatched)], ["waiting", brief(rowsOf(overview.outbox, "PENDING"))], ["oldest", oldest(times[0])], ["delivered", finished(overview.outbox, "DISPATCHED")]],
    tone: failed ? "warn" : "",
    state: { status: failed ? ["FAILED", plural(failed, "failed", "failed")] : null },
  };
}

/** Configured destinations and those that only rows name; items that need attention come first. */
function destinations(overview) {
  return state.destinations(overview).sort(byRank).map(({ name, guard, backlog, state: now }) => {
    const job = guard?.phase ? `bulk job: ${String(guard.phase).toLowerCase().replaceAll("_", " ")}` : null;
    // One line at most: the reason of a failure, or the job.
    const lines = [now.lines[0] ?? job].filter(Boolean);
    return {
      name,
      href: `#/destinations/${encodeURIComponent(name)}`,
      all: "#/destinations",
      numbers: [["per s", rate(guard?.per_second ?? 0)], ["waiting", brief(backlog?.pending ?? 0)], ["oldest", oldest(backlog?.oldest)], ["in flight", brief(guard?.in_flight ?? 0)]],
      tone: now.attention ? now.tone : "",
      state: { status: [now.look, now.words], kind: guard?.kind, lines, budget: now.lines.length ? null : (guard?.calls ?? null) },
    };
  });
}

/** API calls used today: a bar and the same figures as text. */
function budget({ used, limit }) {
  const part = limit > 0 ? used / limit : 0;
  return h("div", { class: "budget" },
    h("meter", { min: 0, max: limit, low: limit * 0.8, high: limit * 0.95, optimum: 0, value: used, "aria-label": "API calls used today" }),
    h("span", { class: "soft" }, `${brief(used)} of ${brief(limit)} calls today (${Math.round(part * 100)} %)`));
}

/** Curves between neighbouring columns; they move where messages flow. */
function connect(element, wires, columns, { sample, wanted }) {
  const base = element.getBoundingClientRect();
  // On a phone the columns are stacked and need no curves.
  const stacked = columns[0].element.getBoundingClientRect().left === columns[1].element.getBoundingClientRect().left;
  if (stacked) return replace(wires);
  const moving = [sample?.stored, sample?.processed, sample?.processed, sample?.dispatched].map((value) => value > 0);
  const paths = columns.slice(0, -1).flatMap((column, index) => {
    const from = [...column.list.children];
    const to = [...columns[index + 1].list.children];
    return from.flatMap((left) => to.map((right, at) => {
      const tone = index === 3 && wanted[4][at]?.tone === "bad" ? "stopped" : moving[index] ? "moving" : "";
      return s("path", { class: `wire ${tone}`, d: curve(left.getBoundingClientRect(), right.getBoundingClientRect(), base) });
    }));
  });
  replace(wires, paths);
}

function curve(left, right, base) {
  const [x1, y1] = [left.right - base.left, (left.top + left.bottom) / 2 - base.top];
  const [x2, y2] = [right.left - base.left, (right.top + right.bottom) / 2 - base.top];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}
