/** What may be done with a batch, by its state. */

import { confirmCancel } from "./confirming.js";
import { make, show, write } from "./dom.js";
import { number } from "./formats.js";
import { isClosed } from "./states.js";

export class Actions {
  constructor(act) {
    const steer = (verb, body) => (event) => busy(event.currentTarget, () => act(verb, body));
    this.retry = make("button", { type: "button", class: "primary", onclick: steer("retry", {}) });
    this.retryCancelled = make("button", { type: "button", onclick: steer("retry", { status: "cancelled" }) });
    this.pause = make("button", { type: "button", onclick: steer("pause") }, "Pause");
    this.resume = make("button", { type: "button", class: "primary", onclick: steer("resume") }, "Resume");
    this.cancel = make("button", { type: "button", class: "danger", onclick: () => this.ask(act) }, "Cancel…");
    this.node = make("div", { class: "actions", role: "group", "aria-label": "Actions", tabindex: "-1" });
    this.node.append(this.retry, this.retryCancelled, this.resume, this.pause, this.cancel);
  }

  async ask(act) {
    const reason = await confirmCancel(this.status);
    if (reason !== null) {
      await busy(this.cancel, () => act("cancel", reason === "" ? {} : { reason }));
    }
  }

  update(status) {
    this.status = status;
    const held = [...this.node.children].find((button) => button === document.activeElement);
    const open = !isClosed(status);
    const steerable = open && status.status !== "cancelling";
    const kept = status.purged_at === null;
    show(this.retry, kept && status.failed > 0 && status.status !== "cancelling");
    write(this.retry, `Retry ${number(status.failed)} failed`);
    show(this.retryCancelled, kept && status.cancelled > 0 && !open);
    write(this.retryCancelled, `Retry ${number(status.cancelled)} cancelled`);
    show(this.pause, steerable && status.status !== "paused");
    show(this.resume, status.status === "paused");
    show(this.cancel, steerable);
    if (held?.hidden) {
      this.keepFocus(held);
    }
  }

  // A button that goes away must not take the keyboard's place on the page with it.
  keepFocus(gone) {
    const other = new Map([
      [this.pause, this.resume],
      [this.resume, this.pause],
    ]).get(gone);
    const next = other === undefined || other.hidden ? this.node : other;
    next.focus();
  }
}

/** Runs work for a button that cannot be pressed meanwhile; the focus stays where it was. */
export async function busy(button, work) {
  if (button.getAttribute("aria-disabled") === "true") {
    return;
  }
  button.setAttribute("aria-disabled", "true");
  try {
    await work();
  } finally {
    button.removeAttribute("aria-disabled");
  }
}
