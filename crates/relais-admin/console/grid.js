// A table of rows from the overview: searched, filtered and sorted in the browser, and kept up to date.

import { h, icon, replace } from "./dom.js";
import { query } from "./api.js";
import { empty, heading } from "./parts.js";
import { plural } from "./format.js";
import { keepingFocus, table, tableRow } from "./table.js";
import * as live from "./live.js";

/** Most rows of the table; the search finds the others. */
const ROWS_MAX = 500;

/**
 * `spec`: title, about, base (of its address), noun [one, many], rows(overview), key(row), text(row) to search in, filters
 * [[value, label, test]], columns [{ title, cell, by, kind }], sort (the title it starts with), href(row), empty.
 */
export async function gridPage(context, spec) {
  const first = await live.current(context);
  const wanted = { search: context.query.get("search") ?? "", show: context.query.get("show") ?? "", sort: context.query.get("sort") ?? spec.sort };
  const body = h("tbody");
  const head = h("tr");
  const holder = h("div", { class: "list" });
  const words = h("p", { class: "soft", role: "status" });
  const search = h("input", { id: "grid-search", type: "search", value: wanted.search, placeholder: "part of a name", autocomplete: "off", spellcheck: "false" });
  const show = h("select", { id: "grid-show" }, spec.filters.map(([value, label]) => h("option", { value, selected: value === wanted.show }, label)));
  const filled = table(spec, head, body);
  let overview = first;
  let shown = "";
  let sorted = null;

  // Only when the order changes: a new button would take the focus and the click from the old one.
  const drawHead = () => {
    if (sorted === wanted.sort) return;
    sorted = wanted.sort;
    const focused = head.contains(document.activeElement);
    replace(head, spec.columns.map((column) => header(column, wanted, (next) => change({ sort: next }))));
    if (focused) head.querySelector("[aria-sort] button")?.focus();
  };
  const draw = () => {
    const all = spec.rows(overview);
    const test = spec.filters.find(([value]) => value === wanted.show)?.[2] ?? (() => true);
    const needle = wanted.search.trim().toLowerCase();
    const rows = order(all.filter((row) => test(row) && spec.text(row).toLowerCase().includes(needle)), spec, wanted.sort);
    const text = JSON.stringify([wanted, rows.slice(0, ROWS_MAX)]);
    if (text === shown) return;
    shown = text;
    drawHead();
    const nothing = all.length ? empty("No matches", "No name contains this text, or no row is in this state.") : empty(...spec.empty);
    keepingFocus(body, () => {
      replace(body, rows.slice(0, ROWS_MAX).map((row) => tableRow(row, spec)));
      replace(holder, rows.length ? filled : nothing);
    });
    const count = rows.length === all.length ? plural(all.length, ...spec.noun) : `${rows.length} of ${plural(all.length, ...spec.noun)}`;
    words.textContent = rows.length > ROWS_MAX ? `${count}; the first ${ROWS_MAX} are shown` : count;
  };
  const change = (next) => {
    Object.assign(wanted, next);
    const kept = { search: wanted.search, show: wanted.show, sort: wanted.sort === spec.sort ? "" : wanted.sort };
    history.replaceState(null, "", `${spec.base}${query(kept)}`);
    draw();
  };
  search.addEventListener("input", () => change({ search: search.value }));
  show.addEventListener("change", () => change({ show: show.value }));
  context.leave(live.on("overview", (next) => {
    overview = next;
    draw();
  }));
  draw();
  const form = h("form", { class: "filters", role: "search", "aria-label": `Filter ${spec.title.toLowerCase()}`, on: { submit: (event) => event.preventDefault() } },
    h("div", { class: "filter" }, h("label", { for: "grid-search" }, "Search"), search),
    h("div", { class: "filter" }, h("label", { for: "grid-show" }, "Show"), show),
    words);
  return h("div", { class: "page" }, heading(spec.title, spec.about), form, holder);
}

/** `-name` sorts in descending order. */
function order(rows, spec, sort) {
  const down = sort.startsWith("-");
  const column = spec.columns.find((one) => one.title === sort.replace(/^-/, "")) ?? spec.columns[0];
  const compare = (left, right) => (left < right ? -1 : left > right ? 1 : 0);
  return [...rows].sort((left, right) => (down ? -1 : 1) * compare(column.by(left), column.by(right)) || compare(spec.key(left), spec.key(right)));
}

function header(column, wanted, sort) {
  if (!column.by) return h("th", { scope: "col", class: column.kind ?? "" }, column.title);
  const up = wanted.sort === column.title;
  const down = wanted.sort === `-${column.title}`;
  const press = () => sort(up ? `-${column.title}` : column.title);
  return h("th", { scope: "col", class: column.kind ?? "", "aria-sort": up ? "ascending" : down ? "descending" : null },
    h("button", { type: "button", class: "sort", on: { click: press } }, column.title, h("span", { class: `arrow ${down ? "down" : up ? "up" : ""}`, "aria-hidden": "true" }, up || down ? icon("next") : null)));
}
