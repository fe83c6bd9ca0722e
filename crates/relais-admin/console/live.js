// The event stream of the server. It reconnects with exponential backoff and polls the overview meanwhile, so that
// figures stay current where a stream cannot be opened. A stream without events is stale: it is closed and replaced.

import { Problem, get } from "./api.js";
import { setServerNow } from "./format.js";
import { here } from "./dom.js";

const FIRST_MS = 1000;
const MAX_MS = 5000;
/** A stream without events for this time is stale. The server sends one at least every three seconds. */
const SILENCE_MS = 5000;
const WATCH_MS = 1000;
/** A hidden page closes its stream after this time: a browser opens at most six connections to one host,
 * all tabs together. */
const HIDDEN_MS = 3000;

const listeners = new Map();
let stream = null;
let pause = FIRST_MS;
let timer = null;
let hidden = null;
let running = false;
/** The time of the last event, by the browser's clock. */
let heard = 0;

/** The newest overview, and its time of arrival by the browser's clock. */
export let overview = null;
export let arrived = 0;
/** `live`, `slow` (polled), `late` (no news for some seconds), `store` (the database does not answer) or `off`. */
export let state = "late";
/** The problem of the states `store` and `off`. */
export let problem = null;

/** Returns the newest overview, and reads the first one. */
export async function current({ signal }) {
  return overview ?? get("/overview", { signal });
}

/** Returns true if relais or its database does not answer. */
export function isDown() {
  return state === "store" || state === "off";
}

/** Listens to `overview`, `sample` or `state`. Returns a function that stops listening. */
export function on(type, listener) {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(listener);
  return () => listeners.get(type).delete(listener);
}

export function start() {
  if (running) return;
  running = true;
  connect();
}

export function stop() {
  running = false;
  overview = null;
  clearTimeout(timer);
  close();
  become("late");
}

/** Reads the overview at once, for a page that has just changed something and while there is no stream. */
export async function refresh() {
  try {
    take(await get("/overview"));
    if (state !== "live") become("slow");
  } catch (error) {
    // A stream that has been opened meanwhile knows better.
    if (running && state !== "live" && error instanceof Problem) become(error.status === 503 ? "store" : "off", error);
  }
}

function connect() {
  close();
  heard = Date.now();
  stream = new EventSource(here("/api/v1/live"));
  const listen = (type, act) => stream.addEventListener(type, (event) => {
    heard = Date.now();
    act(JSON.parse(event.data));
  });
  listen("overview", (next) => {
    pause = FIRST_MS;
    take(next);
    become("live");
  });
  listen("sample", (sample) => notify("sample", sample));
  listen("problem", ({ status, code, detail }) => become("store", new Problem(status, code, detail)));
  stream.addEventListener("error", again);
}

/** Reconnects after a randomized delay, so that open consoles do not reconnect all at once. */
function again() {
  close();
  if (!running) return;
  clearTimeout(timer);
  timer = setTimeout(connect, pause * (0.5 + Math.random() / 2));
  pause = Math.min(pause * 2, MAX_MS);
  if (state === "live") become("late");
  refresh();
}

/** Replaces a stream that has become silent: a process that hangs keeps its connections open. */
function watch() {
  if (running && stream !== null && !document.hidden && Date.now() - heard > SILENCE_MS) again();
}

function close() {
  stream?.close();
  stream = null;
}

function take(next) {
  if (!next) return;
  setServerNow(next.now);
  overview = next;
  arrived = Date.now();
  notify("overview", next);
}

function become(next, why = null) {
  const same = state === next && problem?.message === why?.message;
  state = next;
  problem = why;
  if (!same) notify("state", next);
}

function notify(type, value) {
  for (const listener of listeners.get(type) ?? []) listener(value);
}

setInterval(watch, WATCH_MS);

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      clearTimeout(timer);
      close();
      become("late");
    }, HIDDEN_MS);
  } else if (running && stream === null) {
    clearTimeout(timer);
    pause = FIRST_MS;
    connect();
  }
});
