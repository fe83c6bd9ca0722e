// The confirmation dialog of a decision: effect, number of rows, actor and reason.

import { append, h, replace } from "./dom.js";
import { Problem, post, session } from "./api.js";
import { button, problemNotice, toast } from "./parts.js";
import { on, refresh } from "./live.js";

export const RETRY = "Retries this message ahead of others with the same key and resets its attempt count.";
const ACTOR = "relais.actor";
/** As the API has them. */
const ACTOR_MAX = 200;
const REASON_MAX = 2000;

/**
 * Asks for actor and reason, then runs `act({ actor, reason })`.
 * Returns the result of `act`, or null if the operator cancels. A conflict (409) closes the dialog and is thrown,
 * because the page shows an old state; any other problem is shown in the dialog, where the input can be corrected.
 */
export function decide({ title, text, confirm, danger = false, preview = null, act }) {
  return new Promise((resolve, reject) => {
    const result = h("div", { "aria-live": "assertive" });
    const who = actorField();
    const reason = h("textarea", { id: "reason", name: "reason", rows: "2", required: true, maxlength: REASON_MAX, autocomplete: "off" });
    const submit = h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, h("span", null, confirm));
    const form = h("form", { method: "dialog", class: "decision" },
      h("h2", { id: "dialog-title" }, title),
      text ? h("p", null, text) : null,
      preview,
      who.element,
      h("div", { class: "field" }, h("label", { for: "reason" }, "Reason"), reason, h("p", { class: "hint" }, "Recorded in the audit log.")),
      result,
      h("div", { class: "dialog-buttons" }, button("Cancel", () => dialog.close()), submit));
    const dialog = show(form, () => resolve(null));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!reason.value.trim()) return void reason.focus();
      submit.disabled = true;
      try {
        const answer = await act({ actor: who.value(), reason: reason.value.trim() });
        resolve(answer ?? {});
        dialog.close();
      } catch (problem) {
        submit.disabled = false;
        if (problem instanceof Problem && problem.status === 409) {
          reject(problem);
          dialog.close();
        } else {
          replace(result, problemNotice(problem));
        }
      }
    });
    (who.focus ?? reason).focus();
  });
}

/** Reports a decision (`notice` is a text or a function of the answer) and reloads the page. A conflict is shown above the current state. */
export async function settle(context, decision, notice) {
  try {
    const answer = await decision;
    if (answer === null) return;
    toast(typeof notice === "function" ? notice(answer) : notice);
    refresh();
    context.reload();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    context.reload(problem);
  }
}

/** The button that retries the dead letter of a row. */
export function retryButton(context, path) {
  const ask = () => settle(context, decide({ title: "Retry this message", text: RETRY, confirm: "Retry", act: (who) => post(path, who) }), "The message will be retried.");
  return button("Retry", ask, { kind: "primary", picture: "retry" });
}

/** The button that pauses or resumes a destination, a source or a process type, with the effect of each. */
export function pauseButton(context, path, { name, pause, label = "" }, paused, resumed) {
  const [word, text, picture] = pause ? ["Resume", resumed, "run"] : ["Pause", paused, "pause"];
  const act = (who) => post(`${path}/${word.toLowerCase()}`, who);
  const ask = () => settle(context, decide({ title: `${word} ${name}`, text, confirm: word, act }), changed(pause ? "Resumed." : "Paused."));
  return button(`${word}${label}`, ask, { picture, kind: pause ? "primary" : "" });
}

/** Returns what is reported after a change that may not have been needed. */
export function changed(words) {
  return (answer) => (answer.result === "unchanged" ? "No change: this was already its state." : words);
}

/** Reloads the page when its row has changed, unless the page is in use. `sign` returns the values that count. */
export function follow(context, row, find, sign) {
  context.leave(on("overview", (overview) => {
    const now = find(overview);
    if (now && sign(now) !== sign(row) && !isOpen() && !document.activeElement?.closest("main button")) context.reload();
  }));
}

/** Returns the selection of a bulk action from the filters of a list. */
export function selection(values) {
  const filter = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "").map(([name, value]) => [name, name === "since_seconds" ? Number(value) : value]));
  return Object.keys(filter).length ? { filter } : { all: true };
}

/** The actor: the name of the token, or a name to enter where the token is shared. */
function actorField() {
  if (!isShared()) {
    return { element: h("p", { class: "soft" }, "Recorded as ", h("strong", null, session.name), "."), value: () => session.name };
  }
  const kept = remembered();
  const input = h("input", { id: "actor", name: "actor", type: "text", required: true, maxlength: ACTOR_MAX, autocomplete: "name", value: kept });
  const element = h("div", { class: "field" }, h("label", { for: "actor" }, "Your name"), input);
  const value = () => {
    const name = input.value.trim();
    remember(name);
    return name;
  };
  return { element, value, focus: kept ? null : input };
}

/** Returns the actor of calls without a dialog, such as a validation that changes nothing. */
export function actor() {
  return isShared() ? remembered() || "console" : session.name;
}

/** Returns true without a token on this machine, or with the shared `admin.token`. */
function isShared() {
  return session.loopback || (session.name === "admin" && session.role === "admin");
}

function remembered() {
  try {
    return localStorage.getItem(ACTOR) ?? "";
  } catch {
    return "";
  }
}

function remember(name) {
  try {
    localStorage.setItem(ACTOR, name);
  } catch {
    // Without storage the name is asked for again next time.
  }
}

/** Shows content in a modal dialog; `closed` runs when it closes. */
export function show(content, closed = () => {}) {
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" }, content);
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
    if (before?.isConnected) before.focus();
  });
  append(document.getElementById("dialogs"), dialog);
  dialog.showModal();
  return dialog;
}

/** Returns true while a dialog is open; the page behind it must not change then. */
export function isOpen() {
  return document.querySelector("dialog[open]") !== null;
}

const KEYS = [
  ["/", "find by ID"],
  ["j and k", "next and previous row"],
  ["Enter", "open the row"],
  ["g then o", "overview"],
  ["g then t, s, w", "destinations, sources, workers"],
  ["g then i, u", "inbox, outbox"],
  ["g then d, k", "dead letters, parked keys"],
  ["g then p, r", "processes, undecodable messages"],
  ["g then a", "audit"],
  ["?", "show this list"],
];

export function help() {
  const list = h("dl", { class: "keys" }, KEYS.map(([key, what]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, what))));
  const dialog = show(h("div", { class: "decision" }, h("h2", { id: "dialog-title" }, "Keyboard shortcuts"), list, h("div", { class: "dialog-buttons" }, button("Close", () => dialog.close(), { kind: "primary" }))));
}
