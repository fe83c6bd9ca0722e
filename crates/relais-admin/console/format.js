// Formats of numbers, times and sizes. Times are those of the database: `serverNow` corrects the browser's clock.

import { h } from "./dom.js";

/** The number of recent clock offsets that are kept. */
const OFFSETS_MAX = 30;
const offsets = [];
let offset = 0;

/** Takes the database's time from a response. Responses arrive late, so the largest offset is the most exact one. */
export function setServerNow(text) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return;
  offsets.push(at - Date.now());
  if (offsets.length > OFFSETS_MAX) offsets.shift();
  offset = Math.max(...offsets);
}

export function serverNow() {
  return Date.now() + offset;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** A short number for narrow places; the exact number belongs in a title. */
export function brief(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10_000 ? whole.format(value) : compact.format(value);
}

export function rate(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  return value < 10 ? small.format(value) : brief(value);
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 ms";
  if (value < 1) return "< 1 ms";
  return value < 1000 ? `${whole.format(value)} ms` : duration(value / 1000);
}

/** `3 s`, `12 min`, `5 h 20 min`, `4 d`. */
export function duration(seconds) {
  if (seconds < 1) return "< 1 s";
  if (seconds < 10) return `${(Math.round(seconds * 10) / 10).toString()} s`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) {
    const minutes = Math.floor((seconds % 3600) / 60);
    return `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(seconds / 86_400)} d`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  if (value < 1024 * 1024) return `${small.format(value / 1024)} KiB`;
  return `${small.format(value / 1024 / 1024)} MiB`;
}

/** Returns the seconds since then by the database's clock; never negative. */
export function age(text) {
  return Math.max(0, (serverNow() - Date.parse(text)) / 1000);
}

export const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const day = { year: "numeric", month: "short", day: "numeric" };

/** Returns the time in the browser's time zone. */
export function local(text) {
  const at = new Date(text);
  const today = new Date(serverNow()).toDateString() === at.toDateString();
  const time = at.toLocaleTimeString("en", clock);
  return today ? time : `${at.toLocaleDateString("en", day)}, ${time}`;
}

/** A point in time: local time, with UTC in the title. */
export function moment(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: `${utc(text)} UTC` }, local(text));
}

/** The time elapsed since then; `tick` keeps it current. */
export function ago(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: `${local(text)} · ${utc(text)} UTC`, data: { ago: "" } }, since(text));
}

function since(text) {
  const ahead = (Date.parse(text) - serverNow()) / 1000;
  if (ahead > 1) return `in ${duration(ahead)}`;
  return age(text) < 1 ? "just now" : `${duration(age(text))} ago`;
}

function utc(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString().replace("T", " ").replace("Z", "");
}

/** Updates every `ago` on the page. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-ago]")) {
    const text = since(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
