// A hex view: offset, sixteen bytes and their printable characters.

import { h } from "./dom.js";
import { soft } from "./parts.js";

const WIDTH = 16;
/** Most lines shown; the number of further bytes is printed below. */
const LINES_MAX = 512;

export function decodeBase64(text) {
  const raw = atob(text);
  return Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
}

/** Builds the view; bytes that are not valid UTF-8 are highlighted. */
export function hexView(bytes) {
  const bad = invalid(bytes);
  const lines = [];
  for (let start = 0; start < bytes.length && lines.length < LINES_MAX; start += WIDTH) {
    lines.push(line(bytes, start, bad));
  }
  const rest = bytes.length - lines.length * WIDTH;
  return h("div", null,
    h("div", { class: "hex", tabindex: "0", role: "group", "aria-label": "Bytes in hexadecimal" }, lines),
    rest > 0 ? soft(`and ${rest} more bytes`) : null,
    bad.size ? soft(`${bad.size} ${bad.size === 1 ? "byte is" : "bytes are"} not UTF-8; the first at offset ${Math.min(...bad)}.`) : null);
}

function line(bytes, start, bad) {
  const part = [...bytes.slice(start, start + WIDTH)];
  const mark = (text, index) => (bad.has(start + index) ? h("mark", null, text) : text);
  const numbers = part.map((byte, index) => [mark(byte.toString(16).padStart(2, "0"), index), index === 7 ? "  " : " "]);
  const gap = "   ".repeat(WIDTH - part.length) + (part.length < 8 ? " " : "");
  const letters = part.map((byte, index) => mark(byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·", index));
  return h("div", { class: "hex-line" },
    h("span", { class: "hex-offset" }, start.toString(16).padStart(6, "0")), "  ",
    h("span", null, numbers, gap), " ",
    h("span", { class: "hex-text" }, letters));
}

/** Returns the offsets of bytes that belong to no UTF-8 sequence. */
function invalid(bytes) {
  const found = new Set();
  let at = 0;
  while (at < bytes.length) {
    const length = sequence(bytes, at);
    if (length === 0) found.add(at);
    at += length || 1;
  }
  return found;
}

function sequence(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return 1;
  const length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (!length || at + length > bytes.length) return 0;
  // The decoder also rejects over-long forms and surrogates.
  try {
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.slice(at, at + length));
    return length;
  } catch {
    return 0;
  }
}
