// A list: filters kept in the address, rows in a fixed order, keyset pages, and keyboard navigation.

import { h, replace } from "./dom.js";
import { get, query } from "./api.js";
import { button, empty, heading } from "./parts.js";
import { isOpen } from "./dialog.js";
import * as live from "./live.js";

/** Minimum time between two refreshes of a visible list. */
const AGAIN_MS = 3000;

export const SINCE = { name: "since_seconds", label: "Since", options: [["", "any time"], ["900", "15 minutes"], ["3600", "1 hour"], ["86400", "1 day"], ["604800", "7 days"]] };

/** The starts of earlier pages, by the list's address: keyset pages know only the next page. */
const trails = new Map();

/**
 * Builds the page of a list.
 * `spec`: title, about, base (of its address), path (of the API), filters, columns [{ title, cell, kind }], href(row), empty,
 * actions(values), extra: fixed parameters, cursor: the API's name of the start of a page.
 */
export async function listPage(context, spec) {
  const values = Object.fromEntries(spec.filters.map((filter) => [filter.name, context.query.get(filter.name) ?? filter.initial ?? ""]));
  const before = context.query.get("before") ?? "";
  const ask = () => get(`${spec.path}${query({ ...values, ...spec.extra, [spec.cursor ?? "before"]: before })}`, { signal: context.signal });
  const head = h("tr", null, spec.columns.map((column) => h("th", { scope: "col", class: column.kind ?? "" }, column.title)));
  const body = h("tbody");
  const holder = h("div", { class: "list" });
  const pager = h("nav", { class: "pager", "aria-label": "Pages of the list" });
  let shown = "";

  const draw = (answer) => {
    const text = JSON.stringify(answer);
    if (text === shown) return;
    shown = text;
    keepingFocus(body, () => {
      replace(body, answer.items.map((row) => tableRow(row, spec)));
      replace(holder, answer.items.length ? table(spec, head, body) : nothing(spec, values, before, answer));
      replace(pager, pages(context, spec, values, before, answer));
    });
  };

  draw(await ask());
  follow(context, before, async () => draw(await ask()));
  return h("div", { class: "page" },
    heading(spec.title, spec.about, spec.actions?.(values) ?? []),
    spec.filters.length ? filterForm(context, spec, values) : null,
    holder,
    pager);
}

/** Refreshes the first page on events, except while a dialog is open. */
function follow(context, before, again) {
  if (before) return;
  let last = Date.now();
  let busy = false;
  context.leave(live.on("overview", async () => {
    if (busy || Date.now() - last < AGAIN_MS || isOpen() || document.hidden) return;
    busy = true;
    await again().catch(() => {});
    last = Date.now();
    busy = false;
  }));
}

/** Draws rows again; the focus stays in its row. */
export function keepingFocus(body, draw) {
  const kept = document.activeElement?.closest?.("tr[data-key]")?.dataset.key;
  draw();
  if (kept) [...body.rows].find((row) => row.dataset.key === kept)?.querySelector("a,button")?.focus();
}

export function table(spec, head, body) {
  return h("div", { class: "scroll" }, h("table", { class: "rows" }, h("caption", { class: "hidden-words" }, spec.title), h("thead", null, head), body));
}

/** One row of a list; a click anywhere opens it. */
export function tableRow(row, spec) {
  const href = spec.href?.(row);
  const cells = spec.columns.map((column, index) => {
    const content = column.cell(row);
    const main = index === 0 && href ? h("a", { class: "row-link", href }, content) : content;
    return h("td", { class: column.kind ?? "", data: { label: column.title } }, h("div", { class: "cell" }, main));
  });
  const open = (event) => {
    if (!href || event.target.closest("a,button,input") || String(getSelection())) return;
    location.hash = href;
  };
  return h("tr", { class: href ? "clickable" : "", data: { key: spec.key(row) }, on: { click: open } }, cells);
}

function nothing(spec, values, before, answer) {
  // The server searches a bounded number of rows for one page.
  if (answer.next) {
    return h("div", { class: "empty" },
      h("p", { class: "empty-title" }, "No matches yet"),
      h("p", null, "No matches in the latest rows. Search older rows."));
  }
  const filtered = before || spec.filters.some((filter) => values[filter.name] !== (filter.initial ?? ""));
  if (!filtered) return empty(spec.empty[0], spec.empty[1]);
  return h("div", { class: "empty" },
    h("p", { class: "empty-title" }, "No matches"),
    h("p", null, "No row matches these filters. ", h("a", { href: spec.base }, "Clear the filters"), " to see all rows."));
}

function filterForm(context, spec, values) {
  const fields = spec.filters.map((filter) => {
    const id = `filter-${filter.name}`;
    const input = filter.options
      ? h("select", { id, name: filter.name, on: { change: () => form.requestSubmit() } }, filter.options.map(([value, label]) => h("option", { value, selected: value === values[filter.name] }, label)))
      : h("input", { id, name: filter.name, type: "search", value: values[filter.name], placeholder: filter.hint ?? "any", autocomplete: "off", spellcheck: "false" });
    return h("div", { class: "filter" }, h("label", { for: id }, filter.label), input);
  });
  const form = h("form", { class: "filters", role: "search", "aria-label": `Filter ${spec.title.toLowerCase()}` }, fields, h("button", { type: "submit", class: "button" }, h("span", null, "Filter")), h("a", { class: "link", href: spec.base }, "Clear"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const next = {};
    for (const filter of spec.filters) {
      const value = form.elements[filter.name].value.trim();
      // Default values are left out of the address.
      if (value !== (filter.initial ?? "")) next[filter.name] = value;
    }
    context.go(`${spec.base}${query(next)}`);
  });
  return form;
}

function pages(context, spec, values, before, answer) {
  const kept = Object.fromEntries(spec.filters.filter((filter) => values[filter.name] !== (filter.initial ?? "")).map((filter) => [filter.name, values[filter.name]]));
  const first = `${spec.base}${query(kept)}`;
  const at = (start) => `${spec.base}${query({ ...kept, before: start })}`;
  const trail = trails.get(first) ?? [];
  const here = before ? trail.indexOf(before) : -1;
  const forward = () => {
    trails.set(first, [...(here >= 0 ? trail.slice(0, here + 1) : before ? [before] : []), answer.next]);
    context.go(at(answer.next));
  };
  const back = () => context.go(here > 0 ? at(trail[here - 1]) : first);
  if (!before && !answer.next) return null;
  const previous = button("Previous", back, { picture: "previous" });
  const next = button(answer.items.length ? "Next" : "Search older rows", forward, { picture: "next" });
  previous.disabled = !before;
  next.disabled = !answer.next;
  const page = here >= 0 ? `Page ${here + 2}` : before ? "A later page" : "Page 1";
  return [previous, h("span", { class: "soft", "aria-current": "page" }, page), next];
}

/** Moves the focus to the next or previous row. */
export function step(by) {
  const links = [...document.querySelectorAll("tr[data-key]")].map((row) => row.querySelector("a.row-link,a,button")).filter(Boolean);
  if (!links.length) return;
  const row = document.activeElement?.closest?.("tr[data-key]");
  const now = links.findIndex((link) => row?.contains(link));
  const next = links[Math.min(Math.max(now + by, 0), links.length - 1)];
  next.focus();
  next.closest("tr").scrollIntoView({ block: "nearest" });
}

