// The effective configuration of a destination or a source.

import { h } from "./dom.js";
import { Problem, get } from "./api.js";
import { panel, soft } from "./parts.js";

/** The configuration of the process that serves the console; it does not change while that process runs. */
const known = new Map();

/** Builds the panel; `path` is the API path of the destination or source. */
export async function configuration(path, signal) {
  if (!known.has(path)) {
    try {
      known.set(path, (await get(`${path}/configuration`, { signal })).lines);
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.status !== 404) throw problem;
      return panel("Configuration", soft("Not configured in the process that serves this console."));
    }
  }
  return panel("Configuration", h("ul", { class: "lines" }, known.get(path).map((line) => h("li", null, line))));
}
