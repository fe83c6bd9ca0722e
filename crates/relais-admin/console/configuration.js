// The effective configuration of a destination or a source.

import { h } from "./dom.js";
import { Problem, get } from "./api.js";
import { panel } from "./parts.js";

/** As the process that serves the console has it: it does not change while that runs. */
const known = new Map();

/** `path` is that of the destination or source in the API. */
export async function configuration(path, signal) {
  if (!known.has(path)) {
    try {
      known.set(path, (await get(`${path}/configuration`, { signal })).lines);
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.status !== 404) throw problem;
      return panel("Configuration", h("p", { class: "soft" }, "Another program has its configuration."));
    }
  }
  return panel("Configuration", h("ul", { class: "lines" }, known.get(path).map((line) => h("li", null, line))));
}
