// The only module that creates elements. Text of messages is set as textContent or as an attribute that cannot run
// code, so no payload can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Attributes that are set as properties, because the attribute holds only the initial value. */
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "hidden", "selected", "indeterminate"]);

/**
 * Creates an element: h("a", { class: "x", href: "#/", on: { click } }, "text", child, [children]).
 * Strings become text. `null`, `undefined` and `false` are left out.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for an SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(element, value);
    else if (name === "css") styles(element, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name) && name in element) element[name] = value;
    else element.setAttribute(safeName(name), value === true ? "" : safeValue(name, String(value)));
  }
  append(element, children);
  return element;
}

function listen(element, listeners) {
  for (const [type, listener] of Object.entries(listeners)) {
    if (listener) element.addEventListener(type, listener);
  }
}

/** Sets styles by the object model, because the content security policy forbids the attribute. */
function styles(element, values) {
  for (const [name, value] of Object.entries(values)) element.style.setProperty(name, value);
}

function safeName(name) {
  if (/^(on|style$|src$|srcdoc$|formaction$)/i.test(name)) throw new Error(`attribute ${name}`);
  return name;
}

/** Links stay on this site and below the page, because another service may mount the console under a path. */
function safeValue(name, value) {
  if (name !== "href") return value;
  if (!/^(#|\/(?!\/))/.test(value)) throw new Error("a link to another site");
  return value.startsWith("#") ? value : here(value);
}

/** Returns the address of an API path relative to the page, because another service may mount it under `/ops/relais`. */
export function here(path) {
  const page = location.pathname.split("/").pop();
  return `${page ? `${page}/` : ""}${path.slice(1)}`;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replaces the children of an element. */
export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Sets a text only if it differs, so that screen readers and selections are not disturbed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const ICONS = {
  overview: "M2 9.5 5 6l3 3 5.5-6M2 13.5h12",
  inbox: "M2 9h3.5l1 2h3l1-2H14M2 9l2-6h8l2 6v4H2z",
  outbox: "M14 2 7 9M14 2 9.5 14 7 9 2 6.5z",
  process: "M3.5 2v12M3.5 4.5h6a3 3 0 0 1 0 6H3.5M8 8l-2.5 2.5L8 13",
  letter: "M2 4h12v9H2zM2 4l6 5 6-5",
  key: "M10.5 9.5a3.5 3.5 0 1 0-3.3-2.3L2 12.5V14h2.5v-2H6.5v-2l1.7-1.7a3.5 3.5 0 0 0 2.3 1.2z",
  repair: "M9.5 6.5 3 13l-1-1 6.5-6.5a3.5 3.5 0 0 1 4.5-3.5L11 4l.5 1.5L13 6l2-2a3.5 3.5 0 0 1-5.5 2.5z",
  audit: "M4 2h6l3 3v9H4zM6 7h5M6 10h5",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
  wait: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3l2 1.5",
  retry: "M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3",
  ok: "M3 8.5 6.5 12 13 4.5",
  bad: "M4 4l8 8M12 4l-8 8",
  undecodable: "M5.5 6a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .7-1 1.7M8 12.5v.5",
  run: "M5 3l8 5-8 5z",
  pause: "M5.5 3v10M10.5 3v10",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M6 3.5l-3 3 3 3",
  skip: "M3 4l5 4-5 4zM8 4l5 4-5 4z",
  alert: "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.3v.5",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  menu: "M2 4h12M2 8h12M2 12h12",
  next: "M6 3l5 5-5 5",
  previous: "M10 3 5 8l5 5",
  account: "M8 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM3 14a5 5 0 0 1 10 0",
  open: "M4 8a4 4 0 0 1 8 0M4 8H2M14 8h-2M8 8l3-3",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5 7.5 13A3 3 0 0 1 3 8.5L4.5 7",
};

/** An icon beside a word; a screen reader reads only the word. */
export function icon(name) {
  const path = s("path", { d: ICONS[name] ?? ICONS.wait });
  return s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}
