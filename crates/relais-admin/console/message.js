// The history of a message, row, process or dead letter: its causes, its events and its effects.

import { h, icon } from "./dom.js";
import { Problem, get } from "./api.js";
import { ago, clock, count, local, plural } from "./format.js";
import { attempts, code, empty, errorText, heading, headers, notice, panel, payload, soft, status } from "./parts.js";

export async function page(context) {
  const id = context.params[0] ?? "";
  if (!id) {
    return h("div", { class: "page" },
      heading("Explain", "The origin of a message, its history, and the messages that resulted from it."),
      empty("Enter an ID", "Use the field at the top (key /): the ID of a message, process or dead letter, or the number of a row."));
  }
  const panels = await explained(id, context.signal);
  return h("div", { class: "page" }, heading("Explain", ["History of ", code(id)]), panels);
}

/** The history as a part of another page. A failure is shown in its panel and leaves the rest of the page intact. */
export async function story(name, signal) {
  try {
    return await explained(name, signal);
  } catch (problem) {
    if (signal.aborted) throw problem;
    return panel("History", soft(problem.message));
  }
}

/** Payload, headers, attempts and history of a row of the inbox or the outbox. */
export async function contents(table, row, signal) {
  return [
    panel("Payload", payload(row.payload, { truncated: row.payload_truncated, size: row.payload_bytes, download: `/api/v1/${table}/${row.id}/payload` })),
    panel("Headers", headers(row.headers)),
    panel("Attempts", attempts(row.history)),
    await story(`${table}:${row.id}`, signal),
  ];
}

async function explained(id, signal) {
  try {
    const answer = await get(`/explain/${encodeURIComponent(id)}`, { signal });
    return [panel("Related", things(answer)), panel("Timeline", timeline(answer))];
  } catch (problem) {
    if (problem instanceof Problem && problem.code === "AMBIGUOUS") return choices(problem);
    throw problem;
  }
}

/** The API names the items that have this id or begin with it. */
function choices(problem) {
  const names = problem.message.match(/\b(inbox|outbox|process|dead-letter|message|job):[\w-]+/g) ?? [];
  return panel("Items with this ID", h("p", null, "Choose one:"),
    h("ul", { class: "choices" }, names.map((name) => h("li", null, h("a", { href: `#/explain/${encodeURIComponent(name)}` }, name)))));
}

/** Returns the address of an item's page. */
function hrefOf(name) {
  const [kind, ...rest] = name.split(":");
  const id = encodeURIComponent(rest.join(":"));
  const pages = { inbox: `#/inbox/${id}`, outbox: `#/outbox/${id}`, process: `#/processes/${id}`, "dead-letter": `#/dead-letters/${id}` };
  return pages[kind] ?? `#/explain/${encodeURIComponent(name)}`;
}

const ROLES = { cause: "caused by", subject: "this item", effect: "resulted in" };

function things({ things: all, notes, cut }) {
  return [
    h("ol", { class: "things" }, all.map((thing) => h("li", { class: `thing ${thing.role}` },
      h("div", { class: "line" },
        h("span", { class: "role" }, ROLES[thing.role] ?? thing.role),
        h("a", { href: hrefOf(thing.name) }, thing.name),
        status(thing.status)),
      soft([thing.event_type, thing.place, thing.key ? `key ${thing.key}` : null].filter(Boolean).join(" · ")),
      thing.problem ? errorText(thing.problem.code, thing.problem.message) : null,
      thing.next_attempt_at && thing.status !== "PROCESSED" ? soft("next attempt ", ago(thing.next_attempt_at)) : null,
      thing.held_by ? h("p", null, "Its key is parked behind ", h("a", { href: `#/dead-letters/${thing.held_by}` }, "a dead letter"), ".") : null,
      thing.waits_for ? h("p", null, `It ${thing.waits_for}.`) : null))),
    (notes ?? []).map((text) => soft(text)),
    cut ? notice("warn", "The list is incomplete", "Open one of the items above to see its own history.") : null,
  ];
}

function timeline({ events }) {
  if (!events.length) return soft("No events are recorded.");
  let day = "";
  return h("ol", { class: "timeline" }, events.map((event) => {
    const [tone, picture, words, more] = describe(event);
    const today = new Date(event.at).toDateString();
    const first = today !== day;
    day = today;
    return h("li", { class: tone },
      h("span", { class: "dot" }, icon(picture)),
      h("div", null,
        h("div", { class: "line" },
          h("strong", null, words),
          h("a", { class: "about-thing", href: hrefOf(event.about) }, event.about),
          h("time", { datetime: event.at, title: `${event.at} UTC` }, first ? local(event.at) : new Date(event.at).toLocaleTimeString("en", { ...clock, fractionalSecondDigits: 3 }))),
        more.filter(Boolean).map((text) => soft(text))));
  }));
}

/** Returns the position in the source; only brokers have partitions. */
function position({ topic, partition, offset }) {
  return partition === null || partition === undefined ? topic : `${topic}, partition ${partition}, offset ${offset}`;
}

function because(code, message) {
  return [code, message].filter(Boolean).join(": ");
}

/** Returns tone, icon, headline and further lines of an event. */
function describe(event) {
  switch (event.event) {
    case "received":
      return ["info", "inbox", `Received from ${event.source_system}`, [`${event.event_type ?? "no type"} ${event.message_id}, key ${event.key}`, position(event)]];
    case "attempt":
      return attemptWords(event);
    case "processed":
      return ["ok", "ok", "Handled", []];
    case "created":
      return ["info", "outbox", `Written for ${event.destination}`, [`${event.event_type} ${event.message_id}, key ${event.key}`]];
    case "job_planned":
      return ["info", "wait", `Added to a bulk job for ${event.destination}`, [`${count(event.rows)} rows`]];
    case "job_ended":
      return ["calm", "ok", `Bulk job ${event.phase}`, [event.remote_id ? `remote job ID ${event.remote_id}` : null, event.message]];
    case "dispatched":
      return ["ok", "ok", `Delivered to ${event.destination}`, [event.job ? `in job ${event.job}` : null]];
    case "dead_letter":
      return ["bad", "letter", "Became a dead letter", [because(event.code, event.message), `after ${plural(event.attempts, "attempt", "attempts")}`]];
    case "action":
      return ["calm", "account", `${event.action} by ${event.actor}`, [event.reason]];
    case "step":
      return stepWords(event);
    default:
      return ["calm", "wait", String(event.event), []];
  }
}

function attemptWords({ outcome, attempt, code, message, worker }) {
  const ends = (why) => [why, `worker ${worker.slice(0, 13)}`];
  if (outcome === "delivered") return ["ok", "ok", `Attempt ${attempt} succeeded`, ends(message)];
  if (outcome === "ignored" && code === "IGNORED_BY_CONFIGURATION") return ["info", "ok", "Ignored by configuration", ends(message)];
  const why = ends(because(code, message));
  if (outcome === "ignored") return ["warn", "retry", `Attempt ${attempt} ignored as out of order`, why];
  return outcome === "retry" ? ["warn", "retry", `Attempt ${attempt} failed, will be retried`, why] : ["bad", "bad", `Attempt ${attempt} failed, no retry`, why];
}

function stepWords({ process_type: type, entry, note, actor, reason }) {
  const tones = { StepCompleted: "ok", ProcessCompleted: "ok", StepFailed: "bad", StepTimedOut: "bad", ProcessFailed: "bad", CompensationFailed: "bad", ProcessPaused: "warn", CompensationStarted: "warn" };
  return [tones[entry.type] ?? "info", "process", `${type}: ${eventWords(entry)}`, [entry.error, note, signed({ ...entry, actor, because: reason })]];
}

/** Returns actor and reason; some entries have their own field for the reason. */
export function signed(entry) {
  const who = entry.actor ?? entry.pausedBy ?? entry.resumedBy;
  return who ? `by ${who}: ${entry.because ?? entry.reason ?? ""}` : (entry.reason ?? null);
}

/** Turns `StepCompleted` of `pay` into `step pay completed`. */
export function eventWords(entry) {
  const words = entry.type.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().split(" ");
  const [noun, ...rest] = words;
  return [noun, entry.step, ...rest].filter(Boolean).join(" ");
}
