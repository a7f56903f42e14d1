/** The states of batches and items: a word and a shape for each, so that no colour has to be told from another. */

import { make, mark, shape, write } from "./dom.js";

const WORDS = {
  pending: "Pending",
  processing: "Processing",
  paused: "Paused",
  cancelling: "Cancelling",
  completed: "Completed",
  completed_with_failures: "Completed with failures",
  failed: "Failed",
  cancelled: "Cancelled",
};
const SHAPES = {
  pending: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11",
  processing: "M8 2.5a5.5 5.5 0 1 1-5.5 5.5M8 5v3l2 1.5",
  paused: "M5.5 3v10M10.5 3v10",
  cancelling: "M3.5 8h9M9 4.5 12.5 8 9 11.5",
  completed: "M3 8.5 6.5 12 13 4.5",
  completed_with_failures: "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.3",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M4.2 11.8l7.6-7.6",
};
const CLOSED = new Set(["completed", "completed_with_failures", "failed", "cancelled"]);

export const ITEM_STATES = ["pending", "processing", "completed", "failed", "cancelled"];
export const BATCH_STATES = Object.keys(WORDS);

export const isClosed = (status) => CLOSED.has(status.status);

export const stateWord = (state) => WORDS[state] ?? state;

/** A state with its shape. */
export class Badge {
  constructor(state) {
    this.path = shape("path");
    this.word = make("span");
    this.node = make(
      "span",
      { class: "badge" },
      shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, this.path),
      this.word,
    );
    this.update(state);
  }

  update(state) {
    mark(this.node, "data-state", state);
    mark(this.path, "d", SHAPES[state] ?? "");
    write(this.word, stateWord(state));
  }
}

/** A select of states, with one for all. */
export function stateSelect(states, chosen, properties) {
  const options = states.map((state) => make("option", { value: state, selected: state === chosen }, stateWord(state)));
  return make("select", properties, make("option", { value: "" }, "All"), options);
}
