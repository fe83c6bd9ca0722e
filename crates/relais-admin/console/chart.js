// Small line charts, each with the same data as a table for screen readers.

import { h, replace, s, setText } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 84;
const PAD = { left: 50, right: 8, top: 10, bottom: 20 };
/** Most points drawn; more cannot be distinguished. */
const POINTS_MAX = 180;
/** Fewest points that the width of a chart represents. */
const POINTS_MIN = 60;

/**
 * Builds a chart of several series of one unit. `lines`: [{ name, label }]; `format` formats a value.
 * `update(history)` draws { every_ms, end, series }.
 */
export function lineChart({ title, about, lines, format }) {
  const values = lines.map(() => h("span", { class: "legend-value" }, "–"));
  const legend = h("ul", { class: "legend" }, lines.map((line, index) => h("li", { class: `line-${index}` }, h("span", { class: "swatch", "aria-hidden": "true" }), line.label, " ", values[index])));
  const label = s("title", null, title);
  const description = s("desc", null, about);
  const art = s("g");
  const cursor = s("line", { class: "cursor", y1: PAD.top, y2: HEIGHT - PAD.bottom });
  const picture = s("svg", { class: "chart", role: "img", height: HEIGHT }, label, description, art, cursor);
  const table = h("details", { class: "as-table" }, h("summary", null, "As a table"));
  const element = h("figure", { class: "panel chart-box" }, h("figcaption", null, h("h2", null, title), legend), picture, table);
  let history = null;
  let drawn = null;

  const draw = () => {
    if (!history || !picture.clientWidth) return;
    drawn = plot(art, history, lines, picture.clientWidth, format);
    showValues(drawn.count - 1);
    setText(description, sentence(about, lines, drawn, format));
    if (table.open) replace(table, table.firstChild, asTable(history, lines, format));
  };
  const showValues = (index) => lines.forEach((line, at) => setText(values[at], format(drawn.series[at][index] ?? null)));

  picture.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const index = drawn.at(event.clientX - picture.getBoundingClientRect().left);
    cursor.setAttribute("x1", drawn.x(index));
    cursor.setAttribute("x2", drawn.x(index));
    cursor.classList.add("on");
    showValues(index);
  });
  picture.addEventListener("pointerleave", () => {
    cursor.classList.remove("on");
    if (drawn) showValues(drawn.count - 1);
  });
  table.addEventListener("toggle", draw);
  const observer = new ResizeObserver(draw);
  observer.observe(picture);
  return {
    element,
    stop: () => observer.disconnect(),
    update(next) {
      history = next;
      draw();
    },
  };
}

function plot(art, history, lines, width, format) {
  const series = lines.map((line) => thinned(history.series[line.name] ?? []));
  const count = Math.max(...series.map((values) => values.length), 1);
  const slots = Math.max(count, POINTS_MIN);
  const top = ceiling(Math.max(...series.flat().filter((value) => value !== null), 0));
  const inner = width - PAD.left - PAD.right;
  const x = (index) => PAD.left + ((slots - count + index) / (slots - 1)) * inner;
  const y = (value) => HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom);
  const bucket = bucketSize(history.series[lines[0].name]?.length ?? 0) * history.every_ms;
  replace(art, grid(top, width, y, format), times(slots, bucket, x, count, history.end), series.map((values, index) => stroke(values, index, x, y)));
  const at = (left) => Math.min(Math.max(Math.round(((left - PAD.left) / inner) * (slots - 1)) - (slots - count), 0), count - 1);
  return { series, count, x, at };
}

function grid(top, width, y, format) {
  return [0, top / 2, top].map((value) => [
    s("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }),
    s("text", { class: "axis", x: PAD.left - 6, y: y(value) + 3, "text-anchor": "end" }, format(value)),
  ]);
}

function times(slots, every, x, count, end) {
  const words = (index) => new Date(end - (count - 1 - index) * every).toLocaleTimeString("en", clock);
  const first = count - slots;
  return [[first, "start"], [Math.round((first + count - 1) / 2), "middle"], [count - 1, "end"]].map(([index, anchor]) =>
    s("text", { class: "axis", x: x(index), y: HEIGHT - 5, "text-anchor": anchor }, words(index)));
}

/** A line with gaps for missing values, and an area below the first line. */
function stroke(values, index, x, y) {
  const parts = [];
  let part = [];
  values.forEach((value, at) => {
    if (value === null) {
      if (part.length) parts.push(part);
      part = [];
    } else part.push([x(at).toFixed(1), y(value).toFixed(1)]);
  });
  if (part.length) parts.push(part);
  const line = parts.map((points) => `M${points.map((point) => point.join(" ")).join("L")}${points.length === 1 ? "h0.1" : ""}`).join("");
  const area = index === 0 ? parts.map((points) => `M${points[0][0]} ${y(0)}L${points.map((point) => point.join(" ")).join("L")}L${points.at(-1)[0]} ${y(0)}Z`).join("") : "";
  return [area ? s("path", { class: "area line-0", d: area }) : null, s("path", { class: `line line-${index}`, d: line })];
}

function bucketSize(length) {
  return Math.max(1, Math.ceil(length / POINTS_MAX));
}

/** Reduces the points to the means of neighbours. */
function thinned(values) {
  const size = bucketSize(values.length);
  const out = [];
  // From the end, so that the newest bucket is a full one.
  for (let end = values.length; end > 0; end -= size) {
    const known = values.slice(Math.max(0, end - size), end).filter((value) => value !== null);
    out.unshift(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
  }
  return out;
}

/** Returns the next round number. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

function sentence(about, lines, drawn, format) {
  const now = lines.map((line, index) => `${line.label} ${format(drawn.series[index].at(-1) ?? null)}`).join(", ");
  return `${about} Now: ${now}.`;
}

/** The data as a table with one line per minute, newest first. */
function asTable(history, lines, format) {
  const length = history.series[lines[0].name]?.length ?? 0;
  const minute = Math.max(1, Math.round(60_000 / history.every_ms));
  const rows = [];
  for (let end = length; end > 0; end -= minute) {
    const cells = lines.map((line) => {
      const known = (history.series[line.name] ?? []).slice(Math.max(0, end - minute), end).filter((value) => value !== null);
      return h("td", { class: "numeric" }, format(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null));
    });
    const at = new Date(history.end - (length - end) * history.every_ms).toLocaleTimeString("en", { ...clock, second: undefined });
    rows.push(h("tr", null, h("th", { scope: "row" }, at), cells));
  }
  const head = h("tr", null, h("th", { scope: "col" }, "Minute until"), lines.map((line) => h("th", { scope: "col", class: "numeric" }, line.label)));
  return h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, head), h("tbody", null, rows)));
}

/** A line without axes, shown beside the current value. */
export function sparkline() {
  const path = s("path", { class: "line line-0" });
  const element = s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, path);
  return {
    element,
    update(values) {
      const last = thinned((values ?? []).slice(-120)).map((value) => value ?? 0);
      const top = Math.max(...last, 1e-9);
      const points = last.map((value, index) => `${((index / Math.max(last.length - 1, 1)) * 100).toFixed(1)} ${(22 - (value / top) * 20).toFixed(1)}`);
      path.setAttribute("d", points.length ? `M${points.join("L")}` : "");
    },
  };
}
