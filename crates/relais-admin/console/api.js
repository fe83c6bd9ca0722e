// Calls of the HTTP API. Every failure becomes a `Problem` with advice for the operator.

import { here } from "./dom.js";

/** Time limit of a call; the limit of the server is a little shorter. */
const CALL_MS = 25_000;
/** Time limit of calls that the server answers from memory. */
const MEMORY_MS = 5000;
const FROM_MEMORY = ["/overview", "/history", "/session"];

/** The session: name, role, csrf, loopback. */
export let session = null;

const ROLES = ["monitor", "viewer", "operator", "admin"];

/** Returns true if the session has this role or a higher one. */
export function may(role) {
  return session !== null && ROLES.indexOf(session.role) >= ROLES.indexOf(role);
}

/** A failed call: status, code and a message for the operator. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(sentence(detail));
    this.status = status;
    this.code = code;
  }

  /** Returns the next step for the operator. */
  get advice() {
    if (this.status === 0) return "Check that relais is running and reachable from this machine. The console keeps trying.";
    if (this.status === 403) return "Use a token with a role that allows this.";
    if (this.status === 404) return "It may have been removed by retention. Check the ID, or search the list.";
    if (this.status === 409) return "Nothing was changed. The page shows the current state; decide again if it is still needed.";
    if (this.status === 413) return "Use the command line for a payload of this size.";
    if (this.status === 422) return "Correct it and send it again.";
    if (this.status === 429 || this.status === 503) return "Wait a moment and try again.";
    return "If it happens again, check the log of relais.";
  }
}

export function get(path, options = {}) {
  return call("GET", path, undefined, options);
}

export function post(path, body, options = {}) {
  return postText(path, JSON.stringify(body), options);
}

/** Sends a JSON text unparsed, so that its numbers keep every digit. */
export async function postText(path, text, options = {}) {
  try {
    return await call("POST", path, text, options);
  } catch (problem) {
    // Another tab has renewed the session, so the CSRF token has changed.
    if (!(problem instanceof Problem) || problem.code !== "CSRF") throw problem;
    await loadSession();
    return call("POST", path, text, options);
  }
}

/** Builds a query string without empty values. */
export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

export async function loadSession() {
  session = await call("GET", "/session", undefined, {});
  return session;
}

/** Opens a session; the response sets the cookie. */
export async function signIn(token) {
  await send("POST", "/login", JSON.stringify({ token }), {});
  return loadSession();
}

export async function signOut() {
  await send("POST", "/logout", "{}", {});
  session = null;
}

/** Registers the listener for the end of the session. */
let ended = () => {};
export function onSessionEnd(listener) {
  ended = listener;
}

async function call(method, path, text, options) {
  try {
    const limitMs = FROM_MEMORY.includes(path) ? MEMORY_MS : CALL_MS;
    return await send(method, `/api/v1${path}`, text, { limitMs, ...options });
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) {
      session = null;
      ended();
    }
    throw problem;
  }
}

async function send(method, path, text, { signal, limitMs = CALL_MS }) {
  const headers = { accept: "application/json" };
  if (text !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session?.csrf) headers["x-csrf-token"] = session.csrf;
  const limit = AbortSignal.timeout(limitMs);
  let response;
  let body;
  try {
    response = await fetch(here(path), {
      method,
      headers,
      body: text,
      credentials: "same-origin",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    const type = response.headers.get("content-type") ?? "";
    const answer = await response.text();
    body = type.includes("json") ? parsed(answer) : null;
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new Problem(0, "UNREACHABLE", late ? `relais did not answer within ${limitMs / 1000} s.` : "relais does not answer.");
  }
  if (response.ok) return body;
  const detail = body?.detail ?? `The server returned ${response.status} ${response.statusText}.`;
  throw new Problem(response.status, body?.code ?? "UNKNOWN", detail);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Turns the lower-case fragment of an API error into a sentence. */
function sentence(text) {
  const start = /^(?!relais )[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(start) ? start : `${start}.`;
}
