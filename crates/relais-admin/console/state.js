// The state of destinations, sources and processes: one definition for every page.

import { age, duration, plural } from "./format.js";

/** Sort order, worst first. */
const RANK = { bad: 0, warn: 1, calm: 2, ok: 3 };

function judged(tone, look, words, lines = []) {
  return { tone, look, words, lines: lines.filter(Boolean), rank: RANK[tone], attention: tone === "bad" || tone === "warn" };
}

function paused(pause) {
  return `Paused by ${pause.by}: ${pause.reason}`;
}

/** The state of a destination. `guard` is absent if only rows name the destination and no process serves it. */
export function destinationState(guard, backlog) {
  const reason = guard?.reason ? problem(guard.reason.code, guard.reason.message) : null;
  if (guard?.pause) return judged("warn", "PAUSED", "paused", [paused(guard.pause)]);
  if (!guard || !guard.served) {
    const waiting = backlog?.pending ?? 0;
    return judged("bad", "FAILED", "not served", [`No running process delivers to it${waiting ? `: ${plural(waiting, "row waits", "rows wait")}` : ""}.`]);
  }
  const breaker = guard.breaker ?? "closed";
  if (breaker === "open") return judged("bad", "open", `breaker open: ${guard.cause ?? "failing"}`, [reason]);
  if (breaker === "half_open") return judged("warn", "half_open", "probing", [reason]);
  if (guard.conflict) return judged("warn", "RETRY", "configured differently", [guard.conflict]);
  const failing = failingKeys(backlog);
  if (guard.succeeded) return failing ? judged("warn", "RETRY", failing, [problem(backlog.failing.error_code, backlog.failing.error_message)]) : judged("ok", "closed", "reachable");
  const error = guard.last_error;
  if (error) return judged("warn", "RETRY", guard.contacted ? "answers with errors" : "no answer yet", [problem(error.code, error.message)]);
  return guard.contacted ? judged("calm", "closed", "contacted") : judged("calm", "unknown", "not contacted yet");
}

function problem(code, message) {
  return [code, message].filter(Boolean).join(": ");
}

/** Failing keys, in words. A key that recovers within a minute needs no attention. */
function failingKeys(backlog) {
  const { failing, failing_keys: keys } = backlog ?? {};
  return failing && age(failing.since) >= 60 ? plural(keys, "key is failing", "keys are failing") : null;
}

export function sourceState(source) {
  const lost = (source.missed ?? 0) + (source.recreated ?? 0);
  if (source.pause) return judged("warn", "PAUSED", "paused", [paused(source.pause)]);
  if (source.away) return judged("bad", "FAILED", "unavailable", [source.away]);
  if (lost) return judged("bad", "FAILED", `${plural(lost, "record", "records")} lost at the origin`);
  if (source.last_received_at) return judged("ok", "closed", "receiving");
  return judged("calm", "unknown", "nothing received yet");
}

/** A process that runs relais. */
export function instanceState(instance) {
  if (!instance.alive) return judged("bad", "FAILED", "lost", [`No heartbeat for ${duration(age(instance.reported_at))}.`]);
  return judged("ok", "closed", "alive");
}

/** All destinations that are configured, served, paused or named by rows. */
export function destinations(overview) {
  const known = overview.destinations ?? {};
  const backlogs = new Map((overview.backlogs ?? []).map((backlog) => [backlog.destination, backlog]));
  const names = [...new Set([...Object.keys(known), ...backlogs.keys()])].sort();
  return names.map((name) => {
    const [guard, backlog] = [known[name], backlogs.get(name)];
    return { name, guard, backlog, state: destinationState(guard, backlog) };
  });
}

export function sources(overview) {
  return (overview.sources ?? []).map((source) => ({ name: source.name, source, state: sourceState(source) }));
}

/** Workers grouped by process, with the lanes of each. The server leaves out processes lost long ago. */
export function instances(overview) {
  const reports = new Map((overview.instances ?? []).map((instance) => [instance.worker, instance]));
  const rows = overview.workers ?? [];
  for (const row of rows) {
    if (row.alive && !reports.has(row.worker)) reports.set(row.worker, { worker: row.worker, alive: true });
  }
  return [...reports.values()].map((instance) => {
    const own = rows.filter((row) => row.worker === instance.worker);
    return { name: instance.worker, instance, scopes: own, lanes: own.reduce((sum, row) => sum + row.lanes, 0), state: instanceState(instance), here: instance.worker === overview.worker };
  });
}

/** The order of items under "Needs attention". */
const ORDER = { operator: 0, bad: 1, lost: 2, warn: 3 };

/** Pages of the items. */
const PAGE = {
  processes: ["processes", "#/processes"],
  destinations: ["destinations", "#/destinations?show=attention"],
  sources: ["sources", "#/sources?show=attention"],
  workers: ["workers", "#/workers?show=lost"],
  inbox: ["inbox", "#/inbox"],
};

/** All items that need attention: those that wait for an operator first, then what is unavailable, then lost workers,
 * then what is paused or recovers. Each has `kind`, `links` [[name, address]], `state` and `page`. */
export function attention(overview) {
  const item = (kind, name, href, state, page) => ({ kind, links: [[name, href]], state, page: PAGE[page], order: ORDER[state.tone] });
  const unserved = (kind, { name, rows }, words) => item(kind, name, "#/inbox", judged("bad", "FAILED", words, [plural(rows, "message waits.", "messages wait.")]), "inbox");
  const paths = [["Destination", "destinations", destinations(overview)], ["Source", "sources", sources(overview)]];
  const found = [
    ...waiting(overview),
    ...paths.flatMap(([kind, page, rows]) => rows.map((row) => item(kind, row.name, `#/${page}/${encodeURIComponent(row.name)}`, row.state, page))),
    ...lost(overview),
    ...(overview.process_types ?? []).filter((type) => type.pause).map((type) => item("Process type", type.name, "#/processes", judged("warn", "PAUSED", "paused", [paused(type.pause)]), "processes")),
    ...(overview.unserved_inboxes ?? []).map((inbox) => unserved(inbox.name.includes("@") ? "Subscriber" : "Inbox", inbox, "no worker serves it")),
    ...(overview.unknown_types ?? []).map((type) => unserved("Event type", type, "no worker knows it")),
  ].filter((one) => one.state.attention);
  const name = (one) => one.links[0][0];
  return found.sort((left, right) => left.order - right.order || left.kind.localeCompare(right.kind) || name(left).localeCompare(name(right)));
}

/** One item for everything that does not continue without an operator. */
function waiting(overview) {
  const links = [
    [overview.processes_need_operator, "process", "processes", "#/processes"],
    [overview.dead_letters_open, "dead letter", "dead letters", "#/dead-letters"],
    [overview.serde_errors, "undecodable message", "undecodable messages", "#/repair"],
  ].filter(([number]) => number > 0).map(([number, one, many, href]) => [plural(number, one, many), href]);
  if (!links.length) return [];
  const why = overview.processes_need_operator > 0 ? "A step or its compensation failed: retry it or skip it." : null;
  return [{ kind: "Waiting", links, state: judged("bad", "needs_operator", "needs an operator", [why]), page: PAGE.processes, order: ORDER.operator }];
}

/** One item for all lost workers. */
function lost(overview) {
  const missing = instances(overview).filter((row) => !row.instance.alive);
  if (!missing.length) return [];
  const names = missing.map(({ name, instance }) => (instance.host ? `${instance.host} · ${instance.pid}` : name));
  return [{ kind: "Workers", links: [[plural(missing.length, "worker", "workers"), PAGE.workers[1]]], state: judged("bad", "FAILED", "lost", [names.join(", ")]), page: PAGE.workers, order: ORDER.lost }];
}
