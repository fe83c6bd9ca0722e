// Calls of relais. What goes wrong becomes a `Problem` that says what to do.

import { here } from "./dom.js";

/** How long a call may take; the server gives up a little earlier. */
const CALL_MS = 25_000;

/** What is known of the person: name, role, csrf, loopback. */
export let session = null;

const ROLES = ["monitor", "viewer", "operator", "admin"];

/** Whether the person may do what needs this role. */
export function may(role) {
  return session !== null && ROLES.indexOf(session.role) >= ROLES.indexOf(role);
}

/** What went wrong, in words for a person. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }

  /** What to do about it. */
  get advice() {
    if (this.status === 0) return "Check that relais is running and that this machine can reach it. The console goes on trying.";
    if (this.status === 403) return "Ask somebody whose token has the role for it.";
    if (this.status === 404) return "It may have been cleaned up after its retention. Check the id, or look at the list.";
    if (this.status === 409) return "Nothing was changed. What you see now is how it is; decide again if it is still needed.";
    if (this.status === 413) return "Use the command line for something this large.";
    if (this.status === 422) return "Correct it and send it again.";
    if (this.status === 429 || this.status === 503) return "Wait a moment and try again.";
    return "If it stays so, look at the log of relais.";
  }
}

export function get(path, options = {}) {
  return call("GET", path, undefined, options);
}

export function post(path, body, options = {}) {
  return postText(path, JSON.stringify(body), options);
}

/** For a body whose numbers must arrive as they were written. */
export async function postText(path, text, options = {}) {
  try {
    return await call("POST", path, text, options);
  } catch (problem) {
    // The session was renewed in another tab: its token is another one now.
    if (!(problem instanceof Problem) || problem.code !== "CSRF") throw problem;
    await loadSession();
    return call("POST", path, text, options);
  }
}

/** A query without what is empty. */
export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

export async function loadSession() {
  session = await call("GET", "/session", undefined, {});
  return session;
}

/** Opens a session; the answer sets its cookie. */
export async function signIn(token) {
  await send("POST", "/login", JSON.stringify({ token }), {});
  return loadSession();
}

export async function signOut() {
  await send("POST", "/logout", "{}", {});
  session = null;
}

/** A listener for a session that has ended. */
let ended = () => {};
export function onSessionEnd(listener) {
  ended = listener;
}

async function call(method, path, text, options) {
  try {
    return await send(method, `/api/v1${path}`, text, options);
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) {
      session = null;
      ended();
    }
    throw problem;
  }
}

async function send(method, path, text, { signal }) {
  const headers = { accept: "application/json" };
  if (text !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session?.csrf) headers["x-csrf-token"] = session.csrf;
  const limit = AbortSignal.timeout(CALL_MS);
  let response;
  try {
    response = await fetch(here(path), {
      method,
      headers,
      body: text,
      credentials: "same-origin",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new Problem(0, "UNREACHABLE", late ? "relais took too long to answer." : "relais does not answer.");
  }
  const type = response.headers.get("content-type") ?? "";
  const body = type.includes("json") ? await response.json().catch(() => null) : null;
  if (response.ok) return body;
  const detail = body?.detail ?? `The answer was ${response.status} ${response.statusText}.`;
  throw new Problem(response.status, body?.code ?? "UNKNOWN", sentence(detail));
}

/** Problems are told as fragments; a person gets a sentence. */
function sentence(text) {
  const start = /^[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(start) ? start : `${start}.`;
}
