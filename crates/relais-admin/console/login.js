// The sign-in page: exchanges a token for a session.

import { h, replace } from "./dom.js";
import { signIn } from "./api.js";
import { notice } from "./parts.js";

/** Builds the form; `done` runs after the session is opened. */
export function page(done) {
  const token = h("input", { id: "token", name: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const submit = h("button", { type: "submit", class: "button primary" }, h("span", null, "Sign in"));
  const result = h("div", { "aria-live": "assertive" });
  const form = h("form", { class: "login panel" },
    h("h1", { tabindex: "-1" }, "relais"),
    h("p", { class: "soft" }, "Sign in with a token of this server."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"), token),
    result,
    submit,
    h("p", { class: "hint" }, "No token? An administrator of relais creates one with ", h("code", null, "relais token NAME --role viewer")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await signIn(token.value.trim());
      done();
    } catch (problem) {
      const wrong = problem.status === 401;
      replace(result, notice("bad", wrong ? "Invalid token" : "The request failed", wrong ? "Make sure that you copied the whole token, that it has not expired, and that it belongs to this server." : `${problem.message} ${problem.advice}`));
      token.select();
    }
    submit.disabled = false;
  });
  return { element: h("main", { id: "main", class: "login-page" }, form), focus: () => token.focus() };
}
