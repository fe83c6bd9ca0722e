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
  const reason = guard?.reason ? [guard.reason.code, guard.reason.message].filter(Boolean).join(": ") : null;
  if (guard?.pause) return judged("warn", "PAUSED", "paused", [paused(guard.pause)]);
  if (!guard || !guard.served) {
    const waiting = backlog?.pending ?? 0;
    return judged("bad", "FAILED", "not served", [`No running process delivers to it${waiting ? `: ${plural(waiting, "row waits", "rows wait")}` : ""}.`]);
  }
  const breaker = guard.breaker ?? "closed";
  if (breaker === "open") return judged("bad", "open", `breaker open: ${guard.cause ?? "failing"}`, [reason]);
  if (breaker === "half_open") return judged("warn", "half_open", "probing", [reason]);
  if (guard.contacted) return judged("ok", "closed", "reachable");
  if (guard.last_error) return judged("warn", "RETRY", "not reached yet", [[guard.last_error.code, guard.last_error.message].filter(Boolean).join(": ")]);
  return judged("calm", "unknown", "not contacted yet");
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

/** All items that need an operator, worst first. */
export function attention(overview) {
  const stuck = overview.processes_need_operator ?? 0;
  const found = [
    ...destinations(overview).map((row) => ["Destination", row, `#/destinations/${encodeURIComponent(row.name)}`]),
    ...sources(overview).map((row) => ["Source", row, `#/sources/${encodeURIComponent(row.name)}`]),
    ...instances(overview).map((row) => ["Process", { ...row, name: row.instance.host ? `${row.instance.host} · ${row.instance.pid}` : row.name }, "#/workers"]),
    ...(overview.process_types ?? []).filter((type) => type.pause).map((type) => ["Process type", { name: type.name, state: judged("warn", "PAUSED", "paused", [paused(type.pause)]) }, "#/processes"]),
  ].filter(([, row]) => row.state.attention).map(([kind, row, href]) => ({ kind, name: row.name, state: row.state, href }));
  if (stuck > 0) found.push({ kind: "Processes", name: plural(stuck, "process", "processes"), state: judged("bad", "COMPENSATION_FAILED", "needs an operator", ["A step or its compensation failed. Retry it or skip it."]), href: "#/processes" });
  for (const inbox of overview.unserved_inboxes ?? []) found.push({ kind: inbox.name.includes("@") ? "Subscriber" : "Inbox", name: inbox.name, state: judged("bad", "FAILED", "no worker serves it", [plural(inbox.rows, "message waits.", "messages wait.")]), href: "#/inbox" });
  for (const type of overview.unknown_types ?? []) found.push({ kind: "Event type", name: type.name, state: judged("bad", "FAILED", "no worker knows it", [plural(type.rows, "message waits.", "messages wait.")]), href: "#/inbox" });
  return found.sort((left, right) => left.state.rank - right.state.rank || left.kind.localeCompare(right.kind) || left.name.localeCompare(right.name));
}
