/** What is shown for an address that names no page. */

import { make } from "./dom.js";
import { excerpt } from "./text.js";

export class Missing {
  constructor(app, path) {
    this.title = "Not found";
    this.node = make(
      "div",
      { class: "card empty" },
      make("h1", {}, "There is no such page"),
      make("p", {}, "The address names “", excerpt(path), "”; a batch is found by its id."),
      make("a", { href: "#/" }, "Show all batches"),
    );
    app.connection(null);
  }

  change() {}

  end() {}
}
