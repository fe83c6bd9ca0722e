// The stream of what happens now. It reconnects by itself, ever more patiently; meanwhile the overview is
// asked for, so that numbers go on moving where a stream cannot be had.

import { get } from "./api.js";
import { setServerNow } from "./format.js";
import { here } from "./dom.js";

const FIRST_MS = 1000;
const MAX_MS = 30_000;
/** A page nobody looks at gives its stream back after this long: a browser has six connections to a place,
 * whatever the number of its tabs. */
const HIDDEN_MS = 3000;

const listeners = new Map();
let stream = null;
let pause = FIRST_MS;
let timer = null;
let hidden = null;
let running = false;

/** The newest overview, and when it came, by this machine's clock. */
export let overview = null;
export let arrived = 0;
/** `live`, `slow` (asked for now and then) or `off`. */
export let state = "off";

/** Listens to `overview`, `sample` or `state`; gives back how to stop. */
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

/** Asks at once, for a page that has just changed something. */
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
  stream.addEventListener("sample", (event) => tell("sample", JSON.parse(event.data)));
  stream.addEventListener("error", again);
}

/** After a pause with some chance in it, so that not all consoles come back at once. */
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
  tell("overview", next);
}

function become(next) {
  if (state === next) return;
  state = next;
  tell("state", next);
}

function tell(type, value) {
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
