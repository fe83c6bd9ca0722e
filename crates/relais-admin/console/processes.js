// Processes: the list, and the detail page with steps over time, log and possible actions.

import { h, here, replace } from "./dom.js";
import { get, may, post, query } from "./api.js";
import { ago, count, milliseconds, moment, plural, serverNow } from "./format.js";
import { button, copyable, errorText, heading, notice, panel, payload, soft, split, status, trace } from "./parts.js";
import { SINCE, listPage } from "./table.js";
import { decide, isOpen, pauseButton, settle } from "./dialog.js";
import { eventWords, signed, story } from "./message.js";
import * as live from "./live.js";

const STATES = ["new", "running", "paused", "compensating", "succeeded", "compensated", "failed"];

export async function list(context) {
  const page = await listPage(context, {
    title: "Processes",
    about: "Sagas, newest first. Each step sends a command and waits for a reply; if a step fails, completed steps are compensated.",
    base: "#/processes",
    path: "/processes",
    filters: [
      { name: "status", label: "Status", options: [["", "all"], ...STATES.map((name) => [name, name])] },
      { name: "type", label: "Type" },
      { name: "key", label: "Business key" },
      SINCE,
    ],
    columns: [
      { title: "Business key", cell: (row) => row.business_key ?? row.process_id },
      { title: "Status", cell: statusOf },
      { title: "Type", cell: (row) => row.process_type },
      { title: "Step", cell: (row) => row.current_step ?? "–" },
      { title: "Retries", cell: (row) => count(row.retries), kind: "numeric" },
      { title: "Started", cell: (row) => ago(row.created_at) },
      { title: "Last change", cell: (row) => ago(row.updated_at) },
    ],
    key: (row) => row.process_id,
    href: (row) => `#/processes/${row.process_id}`,
    empty: ["No process has started", "Declare a [[process]] in relais.toml, or one in Rust; its first message starts it, and it appears here."],
  });
  const above = h("div", { class: "above" });
  page.firstChild.after(above);
  let seen = "";
  const draw = (overview) => {
    const text = JSON.stringify([overview.processes_need_operator, overview.process_types]);
    if (text === seen) return;
    seen = text;
    replace(above, needing(overview.processes_need_operator ?? 0), types(context, overview.process_types ?? []));
  };
  draw(await live.current(context));
  context.leave(live.on("overview", draw));
  return page;
}

function statusOf(row) {
  return row.needs_operator ? status("needs_operator", `needs an operator (${row.status.toLowerCase()})`) : status(row.status);
}

/** The notice above the list while processes need an operator. */
function needing(stuck) {
  return stuck ? notice("bad", plural(stuck, "process needs an operator", "processes need an operator"), "A step or its compensation failed. Open the process, then retry or skip the step.") : null;
}

/** Process types with their pause and resume buttons. */
function types(context, all) {
  if (!all.length) return null;
  const line = (type) => {
    const path = `/process-types/${encodeURIComponent(type.name)}`;
    const texts = ["Messages and timers of its processes wait until it is resumed, also after a restart.", "Messages and timers that waited are handled at once."];
    const act = may("operator") ? pauseButton(context, path, { name: `process type ${type.name}`, label: ` ${type.name}`, pause: type.pause }, ...texts) : null;
    return h("li", null, h("strong", null, type.name), type.pause ? [status("PAUSED"), h("span", { class: "soft" }, `by ${type.pause.by}: ${type.pause.reason}`)] : null, act);
  };
  return h("section", { class: "panel", "aria-label": "Process types" }, h("ul", { class: "types" }, all.map(line)));
}

/** Label, icon, effect and danger of each action. */
const ACTIONS = {
  pause: ["Pause", "pause", "Replies are still received; no new step starts until an operator resumes it."],
  resume: ["Resume", "run", "The process continues at its current step."],
  retry: ["Retry the step", "retry", "Sends the command of this step again and resets its attempt count."],
  skip: ["Skip the step", "skip", "The step counts as completed without a reply, and the process continues.", true],
  compensate: ["Compensate", "undo", "Compensates all completed steps, last first.", true],
  cancel: ["Cancel the process", "bad", "The process ends as failed; completed steps are not compensated. This cannot be undone.", true],
};

export async function show(context) {
  const path = `/processes/${encodeURIComponent(context.params[0])}`;
  const log = `${path}/log${query({ limit: 100 })}`;
  const [row, entries] = await Promise.all([get(path, { signal: context.signal }), get(log, { signal: context.signal })]);
  follow(context, path, row.version);
  const possible = may("operator") ? (row.actions ?? []) : [];
  const actions = possible.filter((name) => ACTIONS[name]).map((name) => {
    const [label, picture, text, danger = false] = ACTIONS[name];
    const ask = () => settle(context, decide({ title: `${label}: ${row.business_key ?? row.process_type}`, text, confirm: label, danger, act: (who) => post(`${path}/${name}`, who) }), (answer) => `The process is now ${String(answer.status ?? "changed").toLowerCase()}.`);
    return button(label, ask, { picture, kind: danger ? "quiet-danger" : name === "resume" ? "primary" : "" });
  });
  const side = [
    ["Status", statusOf(row)],
    ["Process id", copyable(row.process_id)],
    ["Business key", copyable(row.business_key)],
    ["Type", row.process_type],
    ["Definition", `version ${row.definition}`],
    ["Step", row.current_step],
    ["Retries of the step", count(row.retries)],
    ["Started", moment(row.created_at)],
    ["Last change", moment(row.updated_at)],
    ["Log entries", count(row.version)],
  ];
  return h("div", { class: "page" },
    heading(row.business_key ?? row.process_type, [`${row.process_type} · started `, ago(row.created_at)], actions),
    row.needs_operator ? notice("bad", "This process needs an operator", stuckWords(row)) : null,
    panel("Steps", steps(row)),
    split([
        panel("Log", logList(entries.items), entries.next ? soft("Only the newest 100 entries are shown.") : null),
        panel("State", payload(row.data, { label: "State of the process" })),
        await diagram(path, context.signal),
        await story(`process:${row.process_id}`, context.signal),
      ], side));
}

/** Returns the reason why the process is stuck, and the possible decisions. */
function stuckWords(row) {
  const step = (row.steps ?? []).findLast((one) => one.error);
  const why = step ? `Step ${step.name}: ${step.error}. ` : "";
  return `${why}Retry the step or skip it; it does not continue by itself.`;
}

/** Reloads the page when the process has changed, unless a dialog or a part of the page is in use. */
function follow(context, path, version) {
  let busy = false;
  context.leave(live.on("overview", async () => {
    if (busy || isOpen() || document.activeElement?.closest("main pre, main details, main button")) return;
    busy = true;
    const now = await get(path, { signal: context.signal }).catch(() => null);
    busy = false;
    if (now && now.version !== version && !isOpen()) context.reload();
  }));
}

const STEP = {
  waiting: ["calm", "NEW", "not started"],
  running: ["info", "RUNNING"],
  failed: ["bad", "FAILED"],
  completed: ["ok", "SUCCEEDED"],
  undoing: ["warn", "COMPENSATING", "compensating"],
  stuck: ["bad", "COMPENSATION_FAILED", "compensation failed"],
  undone: ["calm", "COMPENSATED", "compensated"],
};

/** One line per step: name, state, and a bar of its time. */
function steps({ steps: all, created_at: begin, updated_at: last, status: state }) {
  if (!all?.length) return soft("This process of relais does not have the definition, so the steps cannot be listed. See the log below.");
  const over = ["SUCCEEDED", "FAILED", "COMPENSATED"].includes(state);
  const from = Date.parse(begin);
  const to = Math.max(over ? Date.parse(last) : serverNow(), from + 1);
  const left = (text) => Math.min(Math.max((Date.parse(text) - from) / (to - from), 0), 1);
  const line = (step) => {
    const [tone, look, words = step.state] = STEP[step.state] ?? ["calm", "NEW"];
    const start = step.started_at ? left(step.started_at) : null;
    const end = step.ended_at ? left(step.ended_at) : start === null ? null : 1;
    const took = step.started_at ? milliseconds((step.ended_at ? Date.parse(step.ended_at) : serverNow()) - Date.parse(step.started_at)) : "";
    return h("li", { class: `step ${tone}` },
      h("span", { class: "step-name" }, step.name),
      h("span", { class: "step-state" }, status(look, words)),
      h("span", { class: "step-track", "aria-hidden": "true" }, start === null ? null : h("span", { class: "step-bar", css: { left: `${(start * 100).toFixed(2)}%`, width: `${Math.max((end - start) * 100, 0.8).toFixed(2)}%` } })),
      h("span", { class: "step-took" }, took, step.attempts > 1 ? ` · ${count(step.attempts)} attempts` : ""),
      step.error ? h("p", { class: "step-error" }, step.error) : null);
  };
  return h("ol", { class: "steps" }, all.map(line));
}

function logList(entries) {
  return h("ol", { class: "log" }, entries.map((entry) => h("li", null,
    h("span", { class: "seq" }, count(entry.seq)),
    h("div", null,
      h("div", { class: "line" }, h("strong", null, eventWords(entry)), h("time", { datetime: entry.at, title: `${entry.at} UTC` }, moment(entry.at))),
      entry.error ? errorText(null, entry.error) : null,
      entry.note ? soft(entry.note) : null,
      signed(entry) ? soft(signed(entry)) : null,
      entry.message_id ? h("p", null, trace(entry.message_id)) : null))));
}

/** The Mermaid source of the definition, where the definition is known. */
async function diagram(path, signal) {
  try {
    const answer = await fetch(here(`/api/v1${path}/diagram`), { signal, credentials: "same-origin" });
    if (!answer.ok) return null;
    const text = await answer.text();
    return h("details", { class: "panel" }, h("summary", null, "Definition (Mermaid source)"), h("pre", { class: "payload", tabindex: "0" }, text));
  } catch (error) {
    if (signal.aborted) throw error;
    return null;
  }
}
