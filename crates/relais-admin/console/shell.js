// The frame around every page: navigation, search by ID, connection state and the signed-in user.

import { h, icon, replace, setText } from "./dom.js";
import { session, signOut } from "./api.js";
import { brief } from "./format.js";
import { help } from "./dialog.js";
import { destinations, instances, sources } from "./state.js";
import * as live from "./live.js";

const needing = (rows) => rows.filter((row) => row.state.attention).length;

/** Address, name, icon, count of items that need an operator, and CSS class (`apart` begins a group). */
export const PLACES = [
  ["", "Overview", "overview"],
  ["destinations", "Destinations", "outbox", (overview) => needing(destinations(overview)), "apart"],
  ["sources", "Sources", "inbox", (overview) => needing(sources(overview))],
  ["workers", "Workers", "run", (overview) => needing(instances(overview))],
  ["inbox", "Inbox", "inbox", null, "apart"],
  ["outbox", "Outbox", "outbox"],
  ["processes", "Processes", "process", (overview) => overview.processes_need_operator],
  ["dead-letters", "Dead letters", "letter", (overview) => overview.dead_letters_open, "apart"],
  ["parked-keys", "Parked keys", "key", (overview) => overview.parked_keys],
  ["repair", "Undecodable", "repair", (overview) => overview.serde_errors],
  ["audit", "Audit", "audit", null, "apart"],
];

/** Builds the frame. Returns the element for pages and `at(place)`, which marks the current page. */
export function shell(signedOut) {
  const badges = [];
  const links = [];
  const items = PLACES.map((place) => {
    const [address, name, picture, read, kind = ""] = place;
    const badge = read ? h("span", { class: "badge", hidden: true }) : null;
    if (read) badges.push([badge, read, name]);
    const link = h("a", { href: `#/${address}` }, icon(picture), h("span", null, name), badge);
    links.push([address, link]);
    return h("li", { class: kind }, link);
  });
  const nav = h("nav", { class: "places", id: "places", "aria-label": "Pages" }, h("ul", null, items));
  const menu = h("button", { type: "button", class: "button bare menu", "aria-label": "Menu", "aria-expanded": "false", "aria-controls": "places" }, icon("menu"));
  const toggle = (open) => {
    nav.classList.toggle("open", open);
    menu.setAttribute("aria-expanded", String(open));
  };
  menu.addEventListener("click", () => toggle(!nav.classList.contains("open")));
  const shown = state();
  const main = h("main", { id: "main", tabindex: "-1" });
  const lost = outage(main);
  const element = h("div", { class: "frame" },
    h("header", { class: "top" }, menu, h("a", { class: "brand", href: "#/" }, mark(), h("span", null, "relais")), finder(), shown.element, themeSwitch(), account(signedOut)),
    nav, h("div", { class: "content" }, lost.element, main));
  const count = (overview) => badges.forEach(([badge, read, name]) => {
    const number = read(overview) ?? 0;
    badge.hidden = number === 0;
    setText(badge, brief(number));
    badge.setAttribute("aria-label", `${name}: ${number} need attention`);
  });
  const stops = [live.on("overview", count), live.on("state", shown.show), live.on("state", lost.show)];
  return {
    element,
    main,
    stop: () => stops.forEach((stop) => stop()),
    at(place) {
      toggle(false);
      for (const [address, link] of links) {
        if (address === place) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
  };
}

/** The same icon as in the browser tab. */
function mark() {
  const picture = icon("overview");
  picture.setAttribute("viewBox", "0 0 32 32");
  picture.classList.add("mark");
  picture.firstChild.setAttribute("d", "M6 11h9a5 5 0 0 1 5 5 5 5 0 0 0 5 5h1M6 21h5M21 11h5");
  return picture;
}

function finder() {
  const field = h("input", { id: "find", type: "search", placeholder: "Find by ID", "aria-label": "Find by ID: message, row, process or dead letter", autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "finder", role: "search" }, icon("search"), field, h("kbd", { "aria-hidden": "true" }, "/"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const id = field.value.trim();
    if (!id) return;
    field.value = "";
    location.hash = `#/explain/${encodeURIComponent(id)}`;
  });
  return form;
}

const STATES = { live: "live", slow: "polling", late: "waiting for relais", store: "database unavailable", off: "no connection" };

/** The indicator of the connection. */
function state() {
  const words = h("span");
  const element = h("span", { class: "live-state", role: "status", title: "State of the connection that updates the figures" }, h("span", { class: "pulse", "aria-hidden": "true" }), words);
  const show = (name) => {
    element.dataset.state = name;
    setText(words, STATES[name]);
  };
  show(live.state);
  return { element, show };
}

/** The banner above stale figures, shown while relais or its database does not answer. */
function outage(main) {
  const title = h("strong");
  const cause = h("p");
  const since = h("p");
  const element = h("div", { class: "notice bad lost", role: "alert", hidden: true }, icon("alert"), h("div", null, title, cause, since));
  const show = (name) => {
    // Without figures the page itself reports that relais does not answer.
    const down = live.isDown() && (name === "store" || live.overview !== null);
    // `late` decides nothing: the next answer does.
    if (name === "late") return;
    element.hidden = !down;
    main.classList.toggle("stale", down);
    if (!down) return;
    setText(title, name === "store" ? `Database unavailable${live.overview ? `: ${live.overview.store}` : ""}` : "No connection to relais");
    setText(cause, live.problem.message);
    setText(since, live.overview ? `The figures are from ${new Date(live.arrived).toLocaleTimeString("en", { hourCycle: "h23" })} and may be out of date. The console keeps trying.` : "The console keeps trying.");
  };
  return { element, show };
}

/** Switches the theme: system, dark, light. */
function themeSwitch() {
  const root = document.documentElement;
  const next = { system: "dark", dark: "light", light: "system" };
  const words = h("span", { class: "hidden-words" });
  const element = h("button", { type: "button", class: "button bare", id: "theme" }, icon("sun"), words);
  const show = () => {
    const now = root.dataset.theme ?? "system";
    setText(words, `Theme: ${now}`);
    element.title = `Theme: ${now}. Click for ${next[now]}.`;
  };
  element.addEventListener("click", () => {
    const chosen = next[root.dataset.theme ?? "system"];
    if (chosen === "system") delete root.dataset.theme;
    else root.dataset.theme = chosen;
    try {
      localStorage.setItem("relais.theme", chosen);
    } catch {
      // Without storage the choice is kept until the page is closed.
    }
    show();
  });
  show();
  return element;
}

function account(signedOut) {
  const element = h("div", { class: "account" });
  const keys = h("button", { type: "button", class: "button bare", title: "Keyboard shortcuts", on: { click: help } }, h("kbd", { "aria-hidden": "true" }, "?"), h("span", { class: "hidden-words" }, "Keyboard shortcuts"));
  const leave = h("button", { type: "button", class: "button", on: { click: async () => {
    await signOut().catch(() => {});
    signedOut();
  } } }, h("span", null, "Sign out"));
  replace(element, keys, session.loopback
    ? h("span", { class: "who soft", title: "No token is configured: every user of this machine has the role admin" }, icon("account"), "this machine")
    : [h("span", { class: "who", title: `role ${session.role}` }, icon("account"), h("span", null, session.name), h("span", { class: "soft" }, session.role)), leave]);
  return element;
}
