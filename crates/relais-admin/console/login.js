// The way in: a token, exchanged for a session.

import { h, replace } from "./dom.js";
import { signIn } from "./api.js";
import { notice } from "./parts.js";

/** The form; `done` runs once there is a session. */
export function page(done) {
  const token = h("input", { id: "token", name: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const submit = h("button", { type: "submit", class: "button primary" }, h("span", null, "Sign in"));
  const result = h("div", { "aria-live": "assertive" });
  const form = h("form", { class: "login panel" },
    h("h1", { tabindex: "-1" }, "relais"),
    h("p", { class: "soft" }, "Sign in with a token of this relais."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"), token),
    result,
    submit,
    h("p", { class: "hint" }, "You have none? Whoever runs relais makes one: ", h("code", null, "relais token NAME --role viewer")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await signIn(token.value.trim());
      done();
    } catch (problem) {
      const wrong = problem.status === 401;
      replace(result, notice("bad", wrong ? "This token is not known here" : "That did not work", wrong ? "Check that it is whole, not expired, and of this relais." : `${problem.message} ${problem.advice}`));
      token.select();
    }
    submit.disabled = false;
  });
  return { element: h("main", { id: "main", class: "login-page" }, form), focus: () => token.focus() };
}
