// The event stream of the server. It reconnects with exponential backoff and polls the overview meanwhile, so that
// figures stay current where a stream cannot be opened.

import { get } from "./api.js";
import { setServerNow } from "./format.js";
import { here } from "./dom.js";

const FIRST_MS = 1000;
const MAX_MS = 30_000;
/** A hidden page closes its stream after this time: a browser opens at most six connections to one host,
 * all tabs together. */
const HIDDEN_MS = 3000;

const listeners = new Map();
let stream = null;
let pause = FIRST_MS;
let timer = null;
let hidden = null;
let running = false;

/** The newest overview, and its time of arrival by the browser's clock. */
export let overview = null;
export let arrived = 0;
/** `live`, `slow` (polled) or `off`. */
export let state = "off";

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
  become("off");
}

/** Reads the overview at once, for a page that has just changed something. */
export async function refresh() {
  try {
    take(await get("/overview"));
    return true;
  } catch {
    return false;
  }
}

function connect() {
  close();
  stream = new EventSource(here("/api/v1/live"));
  stream.addEventListener("open", () => {
    pause = FIRST_MS;
    become("live");
  });
  stream.addEventListener("overview", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("sample", (event) => notify("sample", JSON.parse(event.data)));
  stream.addEventListener("error", again);
}

/** Reconnects after a randomized delay, so that open consoles do not reconnect all at once. */
async function again() {
  close();
  if (!running) return;
  clearTimeout(timer);
  timer = setTimeout(connect, pause * (0.5 + Math.random() / 2));
  pause = Math.min(pause * 2, MAX_MS);
  const answered = await refresh();
  if (running && stream === null) become(answered ? "slow" : "off");
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

function become(next) {
  if (state === next) return;
  state = next;
  notify("state", next);
}

function notify(type, value) {
  for (const listener of listeners.get(type) ?? []) listener(value);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      clearTimeout(timer);
      close();
      become("off");
    }, HIDDEN_MS);
  } else if (running && stream === null) {
    clearTimeout(timer);
    pause = FIRST_MS;
    connect();
  }
});
