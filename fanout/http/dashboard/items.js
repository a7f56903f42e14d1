/** A page of the batch's items, with a search. */

import { api } from "./api.js";
import { coalesced, make, mark, show, write } from "./dom.js";
import { number } from "./formats.js";
import { Badge, ITEM_STATES, stateSelect } from "./states.js";
import { cell, row, Table } from "./table.js";
import { excerpt } from "./text.js";

const PAGE = 50;
const KEY_CHARACTERS = 96;
const HEADINGS = ["Item", "State", "Failed attempts", "Result or error"];

export class Items {
  constructor(id, address) {
    this.id = id;
    this.address = address;
    this.draw = coalesced(() => this.redraw());
    this.prefix = textField(400);
    this.state = stateSelect(ITEM_STATES, "", {});
    this.errorType = textField(200);
    this.errorCode = textField(200);
    this.table = new Table("items", "Items of this batch", HEADINGS);
    this.problems = make("div", { role: "status" });
    this.empty = make("p", { class: "empty", hidden: true });
    this.first = make("a", { class: "button" }, "First");
    this.next = make("a", { class: "button" }, "Next");
    this.node = make(
      "section",
      { class: "card", "aria-labelledby": "items-title" },
      make("div", { class: "section-heading" }, make("h2", { id: "items-title" }, "Items"), this.form()),
      this.problems,
      this.table.node,
      this.empty,
      make("nav", { class: "pages", "aria-label": "Pages of items" }, this.first, this.next),
    );
  }

  form() {
    return make(
      "form",
      {
        class: "filters",
        role: "search",
        "aria-label": "Search items",
        onsubmit: (event) => this.filter(event),
        onchange: (event) => this.filter(event),
      },
      make("label", {}, "Key begins with", this.prefix),
      make("label", {}, "State", this.state),
      make("label", {}, "Error type", this.errorType),
      make("label", {}, "Error code", this.errorCode),
      make("button", { class: "unseen-until-focus" }, "Search"),
    );
  }

  change(filter) {
    this.wanted = filter;
    const ours = this.at(filter) === this.asked;
    this.asked = null;
    if (ours) {
      // Of the fields' own making: who fills them in may be at the next one already.
      return;
    }
    this.prefix.value = filter.prefix ?? "";
    this.state.value = filter.status ?? "";
    this.errorType.value = filter.error_type ?? "";
    this.errorCode.value = filter.error_code ?? "";
  }

  filter(event) {
    event.preventDefault();
    this.asked = this.at({
      prefix: this.prefix.value,
      status: this.state.value,
      error_type: this.errorType.value,
      error_code: this.errorCode.value,
    });
    location.hash = this.asked;
  }

  at(parameters) {
    const given = Object.entries(parameters).filter(([, value]) => value);
    return given.length === 0 ? this.address : `${this.address}?${new URLSearchParams(given)}`;
  }

  async load(signal) {
    const { prefix, status, error_type, error_code, cursor } = this.wanted;
    const wanted = { prefix, status, error_type, error_code, cursor, limit: PAGE };
    this.page = await api.items(this.id, wanted, signal);
    this.draw();
  }

  redraw() {
    const { items, next } = this.page;
    this.table.update(
      items,
      (item) => item.seq,
      () => new ItemRow(),
      (known, item) => known.update(item, this.at({ ...this.wanted, item: item.item_key })),
    );
    const { cursor, ...filter } = this.wanted;
    show(this.first, cursor !== undefined);
    show(this.next, next !== null);
    mark(this.first, "href", this.at(filter));
    mark(this.next, "href", this.at({ ...filter, cursor: next ?? "" }));
    show(this.table.node, items.length > 0);
    show(this.empty, items.length === 0);
    write(this.empty, next === null ? "No item is like that." : "None so far: the search goes on with Next.");
  }
}

function textField(maxlength) {
  return make("input", { type: "search", maxlength, autocomplete: "off", spellcheck: "false", placeholder: "Any" });
}

class ItemRow {
  constructor() {
    this.link = make("a", { class: "name" });
    this.badge = new Badge("pending");
    this.attempts = make("span", { class: "number" });
    this.outcome = make("span", { class: "message" });
    this.node = row(
      this.link,
      cell("State", this.badge.node),
      cell("Failed attempts", this.attempts),
      cell("Result or error", this.outcome),
    );
  }

  update(item, address) {
    mark(this.link, "href", address);
    if (this.key !== item.item_key) {
      this.key = item.item_key;
      this.link.replaceChildren(excerpt(item.item_key, KEY_CHARACTERS));
    }
    this.badge.update(item.status);
    write(this.attempts, number(item.attempts));
    const outcome = tell(item);
    if (this.told !== outcome) {
      this.told = outcome;
      this.outcome.replaceChildren(...(outcome === "" ? [] : [excerpt(outcome)]));
    }
  }
}

function tell(item) {
  if (item.error !== null && item.status !== "completed") {
    return [item.error.type, item.error.message].filter(Boolean).join(": ");
  }
  if (item.result_left_out) {
    return "(large: open the item to see it)";
  }
  return item.status === "completed" && item.result !== null ? JSON.stringify(item.result) : "";
}
