// The story of anything that has an id: where it came from, what happened, what came of it.

import { h, icon } from "./dom.js";
import { Problem, get } from "./api.js";
import { ago, count, local } from "./format.js";
import { code, empty, heading, notice, panel, status } from "./parts.js";

export async function page(context) {
  const id = context.params[0] ?? "";
  if (!id) {
    return h("div", { class: "page" },
      heading("Explain", "Where a message came from, what happened to it, and what came of it."),
      empty("Which one?", "Write any id into the field at the top: a message id, the number of a row, the id of a process or of a dead letter. The key / goes there."));
  }
  const told = await explained(id, context.signal);
  return h("div", { class: "page" }, heading("Explain", ["The story of ", code(id)]), told);
}

/** The story as a part of another page. It is no harm if it cannot be told there. */
export async function story(name, signal) {
  try {
    return await explained(name, signal);
  } catch (problem) {
    if (signal.aborted) throw problem;
    return panel("Story", h("p", { class: "soft" }, problem.message));
  }
}

async function explained(id, signal) {
  try {
    const told = await get(`/explain/${encodeURIComponent(id)}`, { signal });
    return [panel("What belongs together", things(told)), panel("What happened", timeline(told))];
  } catch (problem) {
    if (problem instanceof Problem && problem.code === "AMBIGUOUS") return choices(problem);
    throw problem;
  }
}

/** Several things have the id; the answer names them in full. */
function choices(problem) {
  const names = problem.message.match(/\b(inbox|outbox|process|dead-letter|message|job):[\w-]+/g) ?? [];
  return panel("Several things have this id", h("p", null, "Which one do you mean?"),
    h("ul", { class: "choices" }, names.map((name) => h("li", null, h("a", { href: `#/explain/${encodeURIComponent(name)}` }, name)))));
}

/** The page of a thing. */
function hrefOf(name) {
  const [kind, ...rest] = name.split(":");
  const id = encodeURIComponent(rest.join(":"));
  const pages = { inbox: `#/inbox/${id}`, outbox: `#/outbox/${id}`, process: `#/processes/${id}`, "dead-letter": `#/dead-letters/${id}` };
  return pages[kind] ?? `#/explain/${encodeURIComponent(name)}`;
}

const ROLES = { cause: "came before", subject: "this one", effect: "came of it" };

function things({ things: all, notes, cut }) {
  return [
    h("ol", { class: "things" }, all.map((thing) => h("li", { class: `thing ${thing.role}` },
      h("div", { class: "line" },
        h("span", { class: "role" }, ROLES[thing.role] ?? thing.role),
        h("a", { href: hrefOf(thing.name) }, thing.name),
        status(thing.status)),
      h("p", { class: "soft" }, [thing.event_type, thing.place, thing.key ? `key ${thing.key}` : null].filter(Boolean).join(" · ")),
      thing.problem ? h("p", { class: "error-text" }, thing.problem.code ? h("code", null, thing.problem.code) : null, " ", thing.problem.message) : null,
      thing.next_attempt_at && thing.status !== "PROCESSED" ? h("p", { class: "soft" }, "next attempt ", ago(thing.next_attempt_at)) : null,
      thing.held_by ? h("p", null, "It waits behind ", h("a", { href: `#/dead-letters/${thing.held_by}` }, "a dead letter"), " of its key.") : null,
      thing.waits_for ? h("p", null, `It ${thing.waits_for}.`) : null))),
    (notes ?? []).map((text) => h("p", { class: "soft" }, text)),
    cut ? notice("warn", "There is more than is shown", "Ask for one of the things above to see its own part.") : null,
  ];
}

function timeline({ events }) {
  if (!events.length) return h("p", { class: "soft" }, "Nothing is known to have happened to it.");
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
          h("time", { datetime: event.at, title: `${event.at} UTC` }, first ? local(event.at) : new Date(event.at).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" }))),
        more.filter(Boolean).map((text) => h("p", { class: "soft" }, text))));
  }));
}

/** Only a broker has partitions. */
function position({ topic, partition, offset }) {
  return partition === null || partition === undefined ? topic : `${topic}, partition ${partition}, offset ${offset}`;
}

function because(code, message) {
  return [code, message].filter(Boolean).join(": ");
}

/** A tone, a picture, a headline and more lines for an event. */
function describe(event) {
  switch (event.event) {
    case "received":
      return ["info", "inbox", `Received from ${event.source_system}`, [`${event.event_type ?? "no type"} ${event.message_id}, key ${event.key}`, position(event)]];
    case "attempt":
      if (event.outcome === "delivered") {
        return ["ok", "ok", `Attempt ${event.attempt} was delivered`, [event.message, `worker ${event.worker.slice(0, 13)}`]];
      }
      if (event.outcome === "ignored") {
        return ["warn", "retry", `Attempt ${event.attempt} ignored as out of order`, [because(event.code, event.message), `worker ${event.worker.slice(0, 13)}`]];
      }
      return [event.outcome === "retry" ? "warn" : "bad", event.outcome === "retry" ? "retry" : "bad", event.outcome === "retry" ? `Attempt ${event.attempt} failed, to be retried` : `Attempt ${event.attempt} failed for good`, [because(event.code, event.message), `worker ${event.worker.slice(0, 13)}`]];
    case "processed":
      return ["ok", "ok", "Handled", []];
    case "created":
      return ["info", "outbox", `Written for ${event.destination}`, [`${event.event_type} ${event.message_id}, key ${event.key}`]];
    case "job_planned":
      return ["info", "wait", `Put into a bulk job for ${event.destination}`, [`${count(event.rows)} rows`]];
    case "job_ended":
      return ["calm", "ok", `Bulk job ${event.phase}`, [event.remote_id ? `there it is ${event.remote_id}` : null, event.message]];
    case "dispatched":
      return ["ok", "ok", `Acknowledged by ${event.destination}`, [event.job ? `in job ${event.job}` : null]];
    case "dead_letter":
      return ["bad", "letter", "Became a dead letter", [because(event.code, event.message), `after ${count(event.attempts)} attempts`]];
    case "action":
      return ["calm", "person", `${event.action} by ${event.actor}`, [event.reason]];
    case "step":
      return stepWords(event);
    default:
      return ["calm", "wait", String(event.event), []];
  }
}

function stepWords({ process_type: type, entry, note, actor, reason }) {
  const tones = { StepCompleted: "ok", ProcessCompleted: "ok", StepFailed: "bad", StepTimedOut: "bad", ProcessFailed: "bad", CompensationFailed: "bad", ProcessPaused: "warn", CompensationStarted: "warn" };
  return [tones[entry.type] ?? "info", "process", `${type}: ${eventWords(entry)}`, [entry.error, note, signed({ ...entry, actor, because: reason })]];
}

/** Who wanted it and why; some entries have a field of their own for that. */
export function signed(entry) {
  const who = entry.actor ?? entry.pausedBy ?? entry.resumedBy;
  return who ? `by ${who}: ${entry.because ?? entry.reason ?? ""}` : (entry.reason ?? null);
}

/** `StepCompleted` of `pay` becomes `step pay completed`. */
export function eventWords(entry) {
  const words = entry.type.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().split(" ");
  const [noun, ...rest] = words;
  return [noun, entry.step, ...rest].filter(Boolean).join(" ");
}
