// JSON as text: formatted and coloured token by token. Numbers are never parsed, so a number with twenty digits is
// shown and sent back unchanged.

const TOKEN = /"(?:[^"\\]|\\[^])*"|-?\d[\d.eE+-]*|true|false|null|[{}[\]:,]|\s+|[^]/g;

/** Longer payloads are shown without colours, because each coloured token needs an element. */
const COLOURED_MAX = 60_000;

/** Returns the tokens of a text as [kind, text]; kinds are key, string, number, word, mark, space, other. */
function tokens(text) {
  const found = [...text.matchAll(TOKEN)].map(([token]) => [kind(token), token]);
  // A string before a colon is a name.
  let last = null;
  for (const token of found) {
    if (token[1] === ":" && last?.[0] === "string") last[0] = "key";
    if (token[0] !== "space") last = token;
  }
  return found;
}

function kind(token) {
  if (token[0] === '"' && token.length > 1) return "string";
  if (/^\s/.test(token)) return "space";
  if (/^-?\d/.test(token)) return "number";
  if (/^[{}[\]:,]$/.test(token)) return "mark";
  return /^(true|false|null)$/.test(token) ? "word" : "other";
}

/** Returns the reason why a text is not JSON, or null. */
export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}

/** Returns JSON formatted on several lines, and other text unchanged. */
export function formatted(text) {
  if (jsonProblem(text)) return text;
  return layout(text).map(([, token]) => token).join("");
}

/** Returns the tokens to display, or null if the text is too long or not JSON. */
export function coloured(text) {
  return text.length <= COLOURED_MAX && !jsonProblem(text) ? layout(text) : null;
}

function layout(text) {
  const all = tokens(text).filter(([name]) => name !== "space");
  const out = [];
  let depth = 0;
  const line = () => out.push(["space", `\n${"  ".repeat(depth)}`]);
  all.forEach((token, index) => {
    const [, word] = token;
    const next = all[index + 1]?.[1];
    if (word === "}" || word === "]") {
      const before = all[index - 1]?.[1];
      depth -= 1;
      if (before !== "{" && before !== "[") line();
    }
    out.push(token);
    if (word === "{" || word === "[") {
      depth += 1;
      if (next !== "}" && next !== "]") line();
    }
    if (word === ",") line();
    if (word === ":") out.push(["space", " "]);
  });
  return out;
}
