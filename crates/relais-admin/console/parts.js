// Pieces that several pages are made of.

import { may } from "./api.js";
import { h, icon, replace } from "./dom.js";
import { bytes, local } from "./format.js";
import { coloured } from "./json_text.js";

/** What each status looks like: a tone, a picture, and always the word. */
const STATUS = {
  RECEIVED: ["info", "wait"],
  RETRY: ["warn", "retry"],
  PROCESSED: ["ok", "ok"],
  FAILED: ["bad", "bad"],
  SERDE_ERROR: ["bad", "unreadable"],
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
  gone: ["calm", "skip"],
  unknown: ["calm", "wait"],
  needs_operator: ["bad", "alert"],
};

export function status(name, words) {
  const [tone, picture] = STATUS[name] ?? ["calm", "wait"];
  const text = words ?? String(name).replaceAll("_", " ").toLowerCase();
  return h("span", { class: `status ${tone}` }, icon(picture), h("span", null, text));
}

/** The head of a page: its name, what it is about, what can be done. */
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

/** Names and values; what has no value is left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** An id or a key: in its own letters, and one click away from the clipboard. */
export function code(text) {
  if (text === null || text === undefined || text === "") return "–";
  return h("code", { class: "id", title: text }, text);
}

/** Workers have long names; their beginning tells them apart. */
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

/** Nothing here: what would be, and how it comes. */
export function empty(title, text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, text));
}

/** Something to know before reading on. */
export function notice(tone, title, text, ...more) {
  const role = tone === "bad" ? "alert" : "status";
  return h("div", { class: `notice ${tone}`, role }, icon(tone === "ok" ? "ok" : "alert"), h("div", null, h("strong", null, title), text ? h("p", null, text) : null, more));
}

export function problemNotice(problem, retry) {
  const title = problem.status === 409 ? "Somebody was faster, or it has moved on" : "That did not work";
  const again = retry ? button("Try again", retry) : null;
  return notice(problem.status === 409 ? "warn" : "bad", title, problem.message, problem.advice ? h("p", { class: "advice" }, problem.advice) : null, again);
}

/** A payload as text, never as anything else. */
export function payload(text, { truncated = false, download = null, size = null, label = "Payload" } = {}) {
  if (text === null || text === undefined) return empty("No payload", "It came without one: a tombstone, or a row that could not be read.");
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
      } } }, "As it came")
    : null;
  const about = [size === null ? null : bytes(size), truncated ? "only the beginning is shown" : null].filter(Boolean).join(" · ");
  const save = download && may("viewer") ? h("a", { class: "link", href: download, download: "" }, "Download") : null;
  return h("div", { class: "payload-box" }, h("div", { class: "payload-bar" }, h("span", { class: "soft" }, about), toggle, save), view);
}

/** Headers of a message; a value may be text, bytes, nothing, or several of these. */
export function headers(all) {
  const rows = Object.entries(all ?? {}).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  if (!rows.length) return h("p", { class: "soft" }, may("viewer") ? "It has no headers." : "Headers are hidden: they need the role viewer.");
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Header"), h("th", { scope: "col" }, "Value"))),
    h("tbody", null, rows.map(([name, value]) => h("tr", null, h("td", null, h("code", null, name)), h("td", null, headerValue(value))))),
  ));
}

function headerValue(value) {
  if (value === null) return h("span", { class: "soft" }, "no value");
  if (typeof value === "object") return [h("span", { class: "soft" }, "bytes, Base64: "), h("code", null, value.base64)];
  return h("code", null, value);
}

/** What was tried and did not succeed. */
export function attempts(history) {
  if (!history?.length) return h("p", { class: "soft" }, "No attempt has failed.");
  return h("ol", { class: "attempts" }, history.map((attempt) => h("li", null,
    h("div", { class: "line" },
      h("span", { class: "number" }, `Attempt ${attempt.attempt}`),
      attempt.outcome === "ignored" ? status("RETRY", "out of order") : attempt.outcome === "delivered" ? status("DISPATCHED", "delivered") : status(attempt.outcome === "retry" ? "RETRY" : "FAILED", attempt.outcome === "retry" ? "to be retried" : "failed for good"),
      h("time", { datetime: attempt.at, title: `${attempt.at} UTC` }, local(attempt.at)),
      h("span", { class: "soft" }, "worker ", worker(attempt.worker))),
    attempt.error_message || attempt.error_code
      ? h("p", { class: "error-text" }, attempt.error_code ? h("code", null, attempt.error_code) : null, " ", attempt.error_message ?? "")
      : null)));
}

export function toast(text, tone = "ok") {
  const item = h("div", { class: `toast ${tone}` }, icon(tone === "ok" ? "ok" : "alert"), text);
  const area = document.getElementById("toasts");
  area.append(item);
  setTimeout(() => item.remove(), tone === "ok" ? 6000 : 15_000);
}
