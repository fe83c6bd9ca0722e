// Numbers, times and sizes as people read them. Times are those of the database: `serverNow` corrects a
// clock of this machine that differs.

import { h } from "./dom.js";

/** How many of the last offsets are looked at. */
const OFFSETS_MAX = 30;
const offsets = [];
let offset = 0;

/** Told by every answer that carries the database's now. It may have been on its way for a while: the one
 * that puts the clock furthest ahead was the freshest. */
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

/** Short, for places with little room; the exact number belongs in a title. */
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

/** Seconds since then, by the database's clock; never negative. */
export function age(text) {
  return Math.max(0, (serverNow() - Date.parse(text)) / 1000);
}

const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const day = { year: "numeric", month: "short", day: "numeric" };

/** In this browser's zone. */
export function local(text) {
  const at = new Date(text);
  const today = new Date(serverNow()).toDateString() === at.toDateString();
  const time = at.toLocaleTimeString("en", clock);
  return today ? time : `${at.toLocaleDateString("en", day)}, ${time}`;
}

/** A moment: local time, with UTC in the title. */
export function moment(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: `${utc(text)} UTC` }, local(text));
}

/** How long ago; `tick` keeps it right. */
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

/** Lets every `ago` on the page grow older. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-ago]")) {
    const text = since(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
