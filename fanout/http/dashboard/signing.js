/** The form that asks for the API's token. */

import { api, Problem } from "./api.js";
import { make, mark } from "./dom.js";

export class SignIn {
  constructor(done) {
    this.done = done;
    this.token = make("input", {
      id: "token",
      type: "password",
      autocomplete: "current-password",
      required: true,
      "aria-describedby": "token-help token-fault",
    });
    this.fault = make("p", { class: "fault", id: "token-fault", role: "alert" });
    this.button = make("button", { class: "primary" }, "Sign in");
    this.node = make(
      "form",
      { class: "card sign-in", onsubmit: (event) => this.send(event) },
      make("h1", {}, "Sign in"),
      make("p", { class: "muted", id: "token-help" }, "This server asks for its token, the value of FANOUT_API_TOKEN."),
      make("label", { for: "token" }, "Token"),
      this.token,
      this.fault,
      this.button,
    );
  }

  focus() {
    this.token.focus();
  }

  async send(event) {
    event.preventDefault();
    this.fault.replaceChildren();
    this.button.disabled = true;
    try {
      await api.signIn(this.token.value);
      this.done();
    } catch (error) {
      if (!(error instanceof Problem)) {
        throw error;
      }
      this.fault.append(error.status === 401 ? "That is not this server's token." : error.message);
      mark(this.token, "aria-invalid", "true");
      this.token.select();
    }
    this.button.disabled = false;
  }
}
