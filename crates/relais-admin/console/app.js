// The entry point of the console: the table of pages by address, and the keyboard shortcuts of every page.

import { h, replace } from "./dom.js";
import { Problem, loadSession, onSessionEnd, session } from "./api.js";
import { tick } from "./format.js";
import { button, empty, heading, notice, problemNotice } from "./parts.js";
import { help, isOpen } from "./dialog.js";
import { step } from "./table.js";
import { PLACES, shell } from "./shell.js";
import * as live from "./live.js";
import * as login from "./login.js";
import * as overview from "./overview.js";
import * as destinations from "./destinations.js";
import * as sources from "./sources.js";
import * as workers from "./workers.js";
import * as inbox from "./inbox.js";
import * as outbox from "./outbox.js";
import * as deadLetters from "./dead_letters.js";
import * as parkedKeys from "./parked_keys.js";
import * as processes from "./processes.js";
import * as repair from "./repair.js";
import * as message from "./message.js";
import * as audit from "./audit.js";

/** Place → [list page, detail page]. */
const PAGES = {
  "": [overview.page],
  destinations: [destinations.list, destinations.show],
  sources: [sources.list, sources.show],
  workers: [workers.list, workers.show],
  inbox: [inbox.list, inbox.show],
  outbox: [outbox.list, outbox.show],
  "dead-letters": [deadLetters.list, deadLetters.show],
  "parked-keys": [parkedKeys.list],
  processes: [processes.list, processes.show],
  repair: [repair.list, repair.show],
  explain: [message.page, message.page],
  audit: [audit.list],
};

const TITLES = { explain: "Explain", ...Object.fromEntries(PLACES) };

/** Delay before a page is loaded again after relais or its database was unavailable. */
const AGAIN_MS = 3000;

const root = document.getElementById("shell");
let frame = null;
let leaving = [];
let shown = "";

/** Splits `#/inbox/17?x=y` into place, parameters and query. */
function address() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [place, ...rest] = path.split("/");
  return { place, params: rest.map(decoded), query: new URLSearchParams(search) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Shows the page of the address. `problem` is shown above it. */
async function render(problem = null, keep = false) {
  leave();
  const { place, params, query } = address();
  const controller = new AbortController();
  const after = [];
  leaving = [() => controller.abort()];
  const context = {
    params,
    query,
    signal: controller.signal,
    leave: (act) => leaving.push(act),
    shown: (act) => after.push(act),
    go: (hash) => (location.hash === hash ? render() : (location.hash = hash)),
    reload: (why) => render(why ?? null, true),
  };
  frame.at(place);
  document.title = `${TITLES[place] ?? "Not found"} · relais`;
  // The old page stays until the new one is ready; a bar shows that it is being loaded.
  frame.main.setAttribute("aria-busy", "true");
  const page = await made(PAGES[place]?.[params.length && params[0] !== "" ? 1 : 0], context);
  if (controller.signal.aborted) return;
  frame.main.removeAttribute("aria-busy");
  replace(frame.main, problem ? problemNotice(problem) : null, page);
  for (const act of after) act();
  const same = shown === `${place}/${params.join("/")}`;
  shown = `${place}/${params.join("/")}`;
  if (!keep && !same) {
    scrollTo(0, 0);
    frame.main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

async function made(page, context) {
  if (!page) return h("div", { class: "page" }, heading("Not found"), empty("There is no such page", "Choose one from the menu, or enter an ID in the search field at the top."));
  try {
    return await page(context);
  } catch (problem) {
    if (context.signal.aborted) return null;
    if (!(problem instanceof Problem)) {
      console.error(problem);
      return h("div", { class: "page" }, notice("bad", "This page failed", "Reload it. If it fails again, report it with the messages of the browser's console.", button("Reload", () => location.reload())));
    }
    if (passes(problem)) {
      // The outage may end at any time, so the page is loaded again without a click.
      const again = setTimeout(() => render(), AGAIN_MS);
      context.leave(() => clearTimeout(again));
    }
    return h("div", { class: "page" }, problemNotice(problem, () => render()));
  }
}

/** Returns true if relais or its database does not answer now and may answer later. */
function passes(problem) {
  return problem.status === 0 || problem.status === 503;
}

function leave() {
  for (const act of leaving) act();
  leaving = [];
}

function showLogin() {
  leave();
  live.stop();
  // Its decision could not be sent without a session.
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  frame?.stop();
  frame = null;
  shown = "";
  const form = login.page(enter);
  document.title = "Sign in · relais";
  replace(root, form.element);
  form.focus();
}

function enter() {
  frame = shell(showLogin);
  replace(root, frame.element);
  live.start();
  render();
}

async function begin() {
  try {
    await loadSession();
    enter();
  } catch (problem) {
    if (problem.status === 401) return;
    replace(root, h("main", { id: "main", class: "login-page" }, problemNotice(problem, () => location.reload())));
    if (passes(problem)) setTimeout(begin, AGAIN_MS);
  }
}

const GO = { o: "", t: "destinations", s: "sources", w: "workers", i: "inbox", u: "outbox", d: "dead-letters", k: "parked-keys", p: "processes", r: "repair", a: "audit" };
let going = false;

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input,textarea,select");
  if (typing && event.key === "Escape") typing.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || typing || !frame || isOpen()) return;
  const act = going && event.key in GO
    ? () => (location.hash = `#/${GO[event.key]}`)
    : { "/": () => document.getElementById("find").focus(), "?": help, j: () => step(1), k: () => step(-1), g: () => {} }[event.key];
  going = event.key === "g" && !going;
  if (!act) return;
  event.preventDefault();
  act();
});

document.getElementById("skip").addEventListener("click", (event) => {
  // The address selects the page, so the jump must not change it.
  event.preventDefault();
  document.getElementById("main")?.focus();
});

onSessionEnd(() => showLogin());
addEventListener("hashchange", () => session && render());
setInterval(tick, 1000);
begin();
