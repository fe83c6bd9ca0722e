// The history of a message, row, process or dead letter: its causes, its events and its effects.

import { h, icon } from "./dom.js";
import { Problem, get } from "./api.js";
import { ago, count, local, plural } from "./format.js";
import { code, empty, heading, notice, panel, status } from "./parts.js";

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
    return panel("History", h("p", { class: "soft" }, problem.message));
  }
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

/** Several items have this id; the API names all of them. */
function choices(problem) {
  const names = problem.message.match(/\b(inbox|outbox|process|dead-letter|message|job):[\w-]+/g) ?? [];
  return panel("Several items have this ID", h("p", null, "Choose one:"),
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
      h("p", { class: "soft" }, [thing.event_type, thing.place, thing.key ? `key ${thing.key}` : null].filter(Boolean).join(" · ")),
      thing.problem ? h("p", { class: "error-text" }, thing.problem.code ? h("code", null, thing.problem.code) : null, " ", thing.problem.message) : null,
      thing.next_attempt_at && thing.status !== "PROCESSED" ? h("p", { class: "soft" }, "next attempt ", ago(thing.next_attempt_at)) : null,
      thing.held_by ? h("p", null, "Its key is parked behind ", h("a", { href: `#/dead-letters/${thing.held_by}` }, "a dead letter"), ".") : null,
      thing.waits_for ? h("p", null, `It ${thing.waits_for}.`) : null))),
    (notes ?? []).map((text) => h("p", { class: "soft" }, text)),
    cut ? notice("warn", "The list is incomplete", "Open one of the items above to see its own history.") : null,
  ];
}

function timeline({ events }) {
  if (!events.length) return h("p", { class: "soft" }, "No events are recorded.");
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
      if (event.outcome === "delivered") {
        return ["ok", "ok", `Attempt ${event.attempt} succeeded`, [event.message, `worker ${event.worker.slice(0, 13)}`]];
      }
      if (event.outcome === "ignored" && event.code === "IGNORED_BY_CONFIGURATION") {
        return ["info", "ok", "Ignored by configuration", [event.message, `worker ${event.worker.slice(0, 13)}`]];
      }
      if (event.outcome === "ignored") {
        return ["warn", "retry", `Attempt ${event.attempt} ignored as out of order`, [because(event.code, event.message), `worker ${event.worker.slice(0, 13)}`]];
      }
      return [event.outcome === "retry" ? "warn" : "bad", event.outcome === "retry" ? "retry" : "bad", event.outcome === "retry" ? `Attempt ${event.attempt} failed, will be retried` : `Attempt ${event.attempt} failed, no retry`, [because(event.code, event.message), `worker ${event.worker.slice(0, 13)}`]];
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
