// Destinations: the list with search and sort, and the detail page with state, limits and actions.

import { h } from "./dom.js";
import { may, post, query } from "./api.js";
import { age, ago, brief, count, duration, milliseconds, moment, rate } from "./format.js";
import { button, empty, errorText, facts, heading, notice, panel, soft, split, status } from "./parts.js";
import { destinations } from "./state.js";
import { gridPage } from "./grid.js";
import { changed, decide, follow, pauseButton, settle } from "./dialog.js";
import { configuration } from "./configuration.js";
import { current } from "./live.js";

export function list(context) {
  return gridPage(context, {
    title: "Destinations",
    about: "Systems that messages go to. Figures of all processes together; destinations that need attention come first.",
    base: "#/destinations",
    noun: ["destination", "destinations"],
    rows: destinations,
    key: (row) => row.name,
    text: (row) => `${row.name} ${row.guard?.kind ?? ""}`,
    filters: [["", "all", () => true], ["attention", "needs attention", (row) => row.state.attention], ["paused", "paused", (row) => row.guard?.pause], ["waiting", "with a backlog", (row) => row.backlog?.pending > 0]],
    sort: "State",
    columns: [
      { title: "Destination", cell: (row) => row.name, by: (row) => row.name },
      { title: "State", cell: (row) => status(row.state.look, row.state.words), by: (row) => row.state.rank },
      { title: "Kind", cell: (row) => row.guard?.kind ?? "–", by: (row) => row.guard?.kind ?? "" },
      { title: "Waiting", cell: (row) => brief(row.backlog?.pending ?? 0), by: (row) => row.backlog?.pending ?? 0, kind: "numeric" },
      { title: "Oldest", cell: (row) => (row.backlog?.oldest ? duration(age(row.backlog.oldest)) : "–"), by: (row) => (row.backlog?.oldest ? -Date.parse(row.backlog.oldest) : -Infinity), kind: "numeric" },
      { title: "Per s", cell: (row) => rate(row.guard?.per_second ?? 0), by: (row) => row.guard?.per_second ?? 0, kind: "numeric" },
      { title: "In flight", cell: (row) => count(row.guard?.in_flight ?? 0), by: (row) => row.guard?.in_flight ?? 0, kind: "numeric" },
      { title: "Last error", cell: (row) => row.state.lines[0] ?? row.guard?.last_error?.code ?? "–", by: (row) => row.guard?.last_error?.code ?? "" },
    ],
    href: (row) => `#/destinations/${encodeURIComponent(row.name)}`,
    empty: ["No destination is configured", "Add a [[destination]] to relais.toml, or one in Rust. It appears here as soon as a process serves it."],
  });
}

export async function show(context) {
  const name = context.params[0];
  const find = (overview) => destinations(overview).find((one) => one.name === name);
  const row = find(await current(context));
  if (!row) return h("div", { class: "page" }, heading(name), empty("No destination has this name", "It may have been renamed. See the list of destinations."));
  follow(context, row, find, sign);
  const { guard, backlog, state } = row;
  const path = `/destinations/${encodeURIComponent(name)}`;
  const places = [["Outbox rows", `#/outbox${query({ destination: name })}`], ["Dead letters", `#/dead-letters${query({ destination: name })}`], ["Audit", `#/audit${query({ target: name })}`]];
  return h("div", { class: "page" },
    heading(name, [guard?.kind ? `${guard.kind} · ` : "", places.map(([words, href], index) => [index ? " · " : "", h("a", { href }, words)])], may("operator") ? actions(context, row, path) : []),
    state.attention ? notice(state.tone, state.words[0].toUpperCase() + state.words.slice(1), state.lines[0]) : null,
    split([
        panel("Last error", lastError(guard?.last_error)),
        backlog?.failing ? panel(`Failing keys: ${count(backlog.failing_keys)}`, oldestFailing(backlog.failing)) : null,
        panel("Circuit breaker", facts([
          ["State", guard?.breaker ? String(guard.breaker).replace("_", " ") : "–"],
          ["Cause", guard?.cause],
          ["Reason", guard?.reason ? [h("code", null, guard.reason.code), " ", guard.reason.message] : null],
          ["Open until", guard?.open_until ? moment(guard.open_until) : null],
        ])),
        panel("Limits of each process", facts([
          ["Rate in force", guard?.rate ?? "none"],
          ["Concurrency in force", count(guard?.concurrency)],
          ["Configured rate", guard?.limits ? guard.limits.rate ?? "none" : "not configured in this process"],
          ["Configured concurrency", guard?.limits ? count(guard.limits.concurrency) : null],
          ["Time limit of a call", guard?.limits ? milliseconds(guard.limits.timeout_ms) : null],
          ["API calls today", guard?.calls ? `${count(guard.calls.used)} of ${count(guard.calls.limit)}` : null],
        ])),
        await configuration(path, context.signal),
      ], [
        ["State", status(state.look, state.words)],
        ["Paused", guard?.pause ? [ago(guard.pause.at), ` by ${guard.pause.by}`] : null],
        ["Waiting", count(backlog?.pending ?? 0)],
        ["Behind parked keys", backlog?.parked ? count(backlog.parked) : null],
        ["Oldest", backlog?.oldest ? ago(backlog.oldest) : "–"],
        ["In flight", count(guard?.in_flight ?? 0)],
        ["Delivered each second", rate(guard?.per_second ?? 0)],
        ["Delivered since start", count(guard?.dispatched ?? 0)],
        ["Retried", count(guard?.retried ?? 0)],
        ["Failed", count(guard?.failed ?? 0)],
        ["Last delivery", guard?.last_delivered_at ? ago(guard.last_delivered_at) : "none yet"],
        ["Bulk job", guard?.phase ? String(guard.phase).toLowerCase() : null],
      ]));
}

function oldestFailing(row) {
  return facts([
    ["Oldest", [h("a", { href: `#/outbox/${row.id}` }, `Outbox row ${row.id}`), " key ", h("code", null, row.msg_key)]],
    ["Failing since", ago(row.since)],
    ["Attempts used", count(row.attempts)],
    ["Next attempt", row.next_attempt_at ? moment(row.next_attempt_at) : null],
    ["Error", errorText(row.error_code, row.error_message)],
  ]);
}

function lastError(error) {
  if (!error) return soft("No call has failed since the processes started.");
  return h("div", null, errorText(error.code, error.message), soft(ago(error.at)));
}

function actions(context, { name, guard }, path) {
  const pause = pauseButton(context, path, { name, pause: guard?.pause }, "No process delivers to it until it is resumed, also after a restart. Its messages wait; none is lost and no attempt is used.", "Deliveries continue in every process.");
  const close = () => settle(context, decide({
    title: `Reset the circuit breaker of ${name}`,
    text: "Each process sends one message at once as a probe. If the target accepts it, the breaker closes and deliveries resume; otherwise it opens again.",
    confirm: "Reset breaker",
    act: (who) => post(`${path}/reset-breaker`, who),
  }), changed("Circuit breaker reset."));
  const limit = button("Change limits", () => changeLimits(context, name, guard, path), { picture: "open" });
  const reset = guard?.breaker && guard.breaker !== "closed"
    ? button("Reset breaker", close, { picture: "retry" })
    : null;
  return [pause, limit, reset].filter(Boolean);
}

function changeLimits(context, name, guard, path) {
  const field = (id, label, hint, value) => {
    const input = h("input", { id, type: "text", value, autocomplete: "off", placeholder: "as configured" });
    return { input, element: h("div", { class: "field" }, h("label", { for: id }, label), input, h("p", { class: "hint" }, hint)) };
  };
  const speed = field("limit-rate", "Rate", "For example 50/s, 100/m or 5/h; empty for the configured one.", guard?.rate ?? "");
  const calls = field("limit-concurrency", "Concurrency", "Calls in flight at once; empty for the configured number.", guard?.concurrency ? String(guard.concurrency) : "");
  const act = (who) => {
    const wanted = { rate: speed.input.value.trim() || null, concurrency: calls.input.value.trim() ? Number(calls.input.value) : null };
    return post(`${path}/limit`, { ...wanted, ...who });
  };
  const decision = decide({ title: `Change the limits of ${name}`, text: "They apply in all processes until they are reset.", confirm: "Change limits", preview: h("div", null, speed.element, calls.element), act });
  settle(context, decision, "Limits changed.");
}

/** Returns the values whose change reloads the page. */
function sign({ guard, backlog, state }) {
  return JSON.stringify([state, guard?.pause, guard?.rate, guard?.concurrency, guard?.in_flight, guard?.dispatched, backlog?.pending, backlog?.failing, guard?.last_error?.at]);
}
