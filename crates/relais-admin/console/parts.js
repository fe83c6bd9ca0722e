// Components that several pages use.

import { may } from "./api.js";
import { h, icon, replace } from "./dom.js";
import { bytes, local } from "./format.js";
import { coloured } from "./json_text.js";

/** The tone and icon of each status; the word is always shown too. */
const STATUS = {
  RECEIVED: ["info", "wait"],
  RETRY: ["warn", "retry"],
  PROCESSED: ["ok", "ok"],
  FAILED: ["bad", "bad"],
  SERDE_ERROR: ["bad", "undecodable"],
  PENDING: ["info", "wait"],
  DISPATCHED: ["ok", "ok"],
  NEW: ["info", "wait"],
  RUNNING: ["info", "run"],
  SUCCEEDED: ["ok", "ok"],
  COMPENSATING: ["warn", "undo"],
  COMPENSATED: ["calm", "undo"],
  PAUSED: ["warn", "pause"],
  open: ["bad", "alert"],
  retried: ["ok", "retry"],
  discarded: ["calm", "skip"],
  skipped: ["calm", "skip"],
  resumed: ["ok", "run"],
  compensated: ["calm", "undo"],
  cancelled: ["calm", "skip"],
  answered: ["ok", "ok"],
  edited: ["warn", "audit"],
  closed: ["ok", "ok"],
  half_open: ["warn", "retry"],
  CONFLICT: ["bad", "alert"],
  TIMED_OUT: ["bad", "wait"],
  COMPENSATION_FAILED: ["bad", "undo"],
  unknown: ["calm", "wait"],
  needs_operator: ["bad", "alert"],
};

/** Row states whose word differs from their name. */
const WORDS = { DISPATCHED: "delivered", PROCESSED: "handled", SERDE_ERROR: "undecodable" };

export function status(name, words) {
  const [tone, picture] = STATUS[name] ?? ["calm", "wait"];
  const text = words ?? WORDS[name] ?? String(name).replaceAll("_", " ").toLowerCase();
  return h("span", { class: `status ${tone}` }, icon(picture), h("span", null, text));
}

/** The header of a page: title, description and actions. */
export function heading(title, about, actions) {
  return h(
    "header",
    { class: "heading" },
    h("div", { class: "heading-words" }, h("h1", { tabindex: "-1" }, title), about ? h("p", { class: "about" }, about) : null),
    actions?.length ? h("div", { class: "actions" }, actions) : null,
  );
}

export function button(text, act, { kind = "", picture = null, title = null } = {}) {
  return h("button", { type: "button", class: `button ${kind}`, title, on: { click: act } }, picture ? icon(picture) : null, h("span", null, text));
}

export function panel(title, ...content) {
  return h("section", { class: "panel" }, title ? h("h2", null, title) : null, content);
}

/** The code and the message of an error. */
export function errorText(code, message) {
  return h("p", { class: "error-text" }, code ? [h("code", null, code), " "] : null, message);
}

/** A paragraph of less weight. */
export function soft(...content) {
  return h("p", { class: "soft" }, content);
}

/** The main part of a page, and facts beside it. */
export function split(main, pairs) {
  return h("div", { class: "split" }, h("div", { class: "main-part" }, main), h("aside", { class: "side-part", "aria-label": "Facts" }, panel(null, facts(pairs))));
}

/** A table without a frame: titles of the columns, and rows of cells. */
export function plainTable(titles, rows) {
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell)))))));
}

/** A list of names and values; pairs without a value are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** An id or a key in a fixed-width font. */
export function code(text) {
  if (text === null || text === undefined || text === "") return "–";
  return h("code", { class: "id", title: text }, text);
}

/** An id with a link to its history. */
export function trace(id) {
  return id ? h("a", { href: `#/explain/${encodeURIComponent(id)}` }, code(id)) : null;
}

/** A worker's name, shortened: the first characters identify it. */
export function worker(name) {
  if (!name) return "–";
  return h("span", { title: name }, name.length > 14 ? `${name.slice(0, 13)}…` : name);
}

export function copyable(text) {
  if (!text) return "–";
  const copy = h("button", { type: "button", class: "copy", "aria-label": "Copy", title: "Copy" }, icon("audit"));
  copy.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    copy.classList.add("done");
    copy.title = "Copied";
  });
  return h("span", { class: "copyable" }, code(text), copy);
}

/** An empty state: a title, and how items get here. */
export function empty(title, text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, text));
}

/** A message box. */
export function notice(tone, title, text, ...more) {
  const role = tone === "bad" ? "alert" : "status";
  return h("div", { class: `notice ${tone}`, role }, icon(tone === "ok" ? "ok" : "alert"), h("div", null, h("strong", null, title), text ? h("p", null, text) : null, more));
}

export function problemNotice(problem, retry) {
  const title = problem.status === 409 ? "The state has changed since this page was loaded" : problem.status === 404 ? "Not found" : "The request failed";
  const again = retry ? button("Try again", retry) : null;
  return notice(problem.status === 409 ? "warn" : "bad", title, problem.message, problem.advice ? h("p", { class: "advice" }, problem.advice) : null, again);
}

/** A payload, always shown as text and never as markup. */
export function payload(text, { truncated = false, download = null, size = null, label = "Payload" } = {}) {
  if (text === null || text === undefined) return empty("No payload", "The message has none: it is a tombstone, or it could not be decoded.");
  const view = h("pre", { class: "payload", tabindex: "0", "aria-label": label });
  const tokens = coloured(text);
  let raw = tokens === null;
  const show = () => {
    if (raw) replace(view, text);
    else replace(view, tokens.map(([kind, token]) => (kind === "space" || kind === "mark" ? token : h("span", { class: `t-${kind}` }, token))));
  };
  show();
  const toggle = tokens
    ? h("button", { type: "button", class: "link", "aria-pressed": "false", on: { click: () => {
        raw = !raw;
        toggle.setAttribute("aria-pressed", String(raw));
        show();
      } } }, "Raw")
    : null;
  const about = [size === null ? null : bytes(size), truncated ? "only the beginning is shown" : null].filter(Boolean).join(" · ");
  const save = download && may("viewer") ? h("a", { class: "link", href: download, download: "" }, "Download") : null;
  return h("div", { class: "payload-box" }, h("div", { class: "payload-bar" }, h("span", { class: "soft" }, about), toggle, save), view);
}

/** The headers of a message; a value is text, bytes, null, or a list of these. */
export function headers(all) {
  const rows = Object.entries(all ?? {}).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  if (!rows.length) return soft(may("viewer") ? "No headers." : "Headers are hidden: they need the role viewer.");
  return plainTable(["Header", "Value"], rows.map(([name, value]) => [h("code", null, name), headerValue(value)]));
}

function headerValue(value) {
  if (value === null) return h("span", { class: "soft" }, "no value");
  if (typeof value === "object") return [h("span", { class: "soft" }, "bytes, Base64: "), h("code", null, value.base64)];
  return h("code", null, value);
}

function attemptStatus(attempt) {
  switch (attempt.outcome) {
    case "ignored":
      return attempt.error_code === "IGNORED_BY_CONFIGURATION" ? status("PROCESSED", "ignored by configuration") : status("RETRY", "out of order");
    case "delivered":
      return status("DISPATCHED");
    case "retry":
      return status("RETRY", "will be retried");
    default:
      return status("FAILED", "dead letter");
  }
}

/** The list of recorded attempts. */
export function attempts(history) {
  if (!history?.length) return soft("No attempt has failed.");
  return h("ol", { class: "attempts" }, history.map((attempt) => h("li", null,
    h("div", { class: "line" },
      h("span", { class: "number" }, `Attempt ${attempt.attempt}`),
      attemptStatus(attempt),
      h("time", { datetime: attempt.at, title: `${attempt.at} UTC` }, local(attempt.at)),
      h("span", { class: "soft" }, "worker ", worker(attempt.worker))),
    attempt.error_message || attempt.error_code
      ? errorText(attempt.error_code, attempt.error_message)
      : null)));
}

export function toast(text, tone = "ok") {
  const item = h("div", { class: `toast ${tone}` }, icon(tone === "ok" ? "ok" : "alert"), text);
  const area = document.getElementById("toasts");
  area.append(item);
  setTimeout(() => item.remove(), tone === "ok" ? 6000 : 15_000);
}
