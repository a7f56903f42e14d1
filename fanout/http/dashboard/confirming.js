/** Asks before a batch is cancelled. */

import { make } from "./dom.js";
import { counted, settled } from "./formats.js";
import { shown } from "./text.js";

const REASON_CHARACTERS = 1_000;

/** The reason that was given, perhaps an empty one; null where it was not to be. */
export function confirmCancel(status) {
  const reason = make("input", { id: "reason", maxlength: REASON_CHARACTERS, autocomplete: "off" });
  const open = counted(status.total - settled(status), "item");
  const dialog = make(
    "dialog",
    { class: "confirm", "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
    make(
      "form",
      { method: "dialog" },
      make("h2", { id: "confirm-title" }, "Cancel this batch?"),
      make(
        "p",
        { id: "confirm-text" },
        `${open} of “`,
        shown(status.title ?? status.key),
        "” will not run any more. Those that run now have 30 seconds to end.",
      ),
      make("label", { for: "reason" }, "Reason ", make("span", { class: "muted" }, "(optional)")),
      reason,
      make(
        "div",
        { class: "buttons" },
        make("button", { type: "button", onclick: () => dialog.close("") }, "Keep it running"),
        make("button", { value: "cancel", class: "danger" }, "Cancel the batch"),
      ),
    ),
  );
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "cancel" ? reason.value.trim() : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
