/** The list of batches: a page of them, the newest first, with live bars. */

import { api } from "./api.js";
import { Bar, describe } from "./bar.js";
import { coalesced, make, mark, show, write } from "./dom.js";
import { percent, setTime, taken } from "./formats.js";
import { Refresher } from "./refresher.js";
import { Badge, BATCH_STATES, isClosed, stateSelect } from "./states.js";
import { cell, row, Table } from "./table.js";
import { shown, visible } from "./text.js";

const PAGE = 25;
const LIVE_MILLISECONDS = 2_000;
const QUIET_MILLISECONDS = 5_000;
const HEADINGS = ["Batch", "State", "Progress", "Submitted", "Time"];

export class Listing {
  constructor(app, parameters) {
    this.app = app;
    this.title = "Batches";
    this.page = null;
    this.draw = coalesced(() => this.redraw());
    this.build();
    this.loadHandlers();
    this.change(parameters);
  }

  build() {
    this.handler = make("input", {
      id: "handler",
      type: "search",
      list: "handlers",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "All",
      pattern: "[a-z0-9._\\-]+",
      title: "A handler's name",
    });
    this.handlers = make("datalist", { id: "handlers" });
    this.state = stateSelect(BATCH_STATES, "", { id: "state" });
    const form = make(
      "form",
      { class: "filters", role: "search", "aria-label": "Filter", onsubmit: (event) => this.filter(event) },
      make("label", {}, "Handler", this.handler),
      this.handlers,
      make("label", {}, "State", this.state),
    );
    // A form of two fields has no button: choosing one is enough, and so is Enter.
    form.addEventListener("change", (event) => this.filter(event));
    this.problems = make("div", { role: "status" });
    this.empty = make("div", { class: "empty", hidden: true });
    this.table = new Table("batches", "Batches, the newest first", HEADINGS);
    this.first = make("a", { class: "button" }, "Newest");
    this.next = make("a", { class: "button" }, "Older");
    this.pages = make("nav", { class: "pages", "aria-label": "Pages" }, this.first, this.next);
    this.node = make(
      "div",
      { class: "listing" },
      make("div", { class: "heading" }, make("h1", {}, "Batches"), form),
      this.problems,
      make("div", { class: "card flush" }, this.table.node, this.empty),
      this.pages,
    );
  }

  async loadHandlers() {
    const { handlers } = await api.handlers().catch(() => ({ handlers: [] }));
    this.handlers.replaceChildren(...handlers.map(({ name }) => make("option", { value: name })));
  }

  change(parameters) {
    this.parameters = parameters;
    this.handler.value = parameters.handler ?? "";
    this.state.value = parameters.status ?? "";
    this.refresher?.end();
    this.refresher = new Refresher(
      (signal) => this.load(signal),
      LIVE_MILLISECONDS,
      (problem) => this.tell(problem),
    );
    this.refresher.ask();
  }

  filter(event) {
    event.preventDefault();
    if (this.handler.reportValidity()) {
      location.hash = listAddress({ handler: this.handler.value.trim(), status: this.state.value });
    }
  }

  async load(signal) {
    const { handler, status, cursor } = this.parameters;
    this.page = await api.batches({ handler, status, cursor, limit: PAGE }, signal);
    this.draw();
    const busy = this.page.batches.some((batch) => !isClosed(batch));
    this.refresher.least = busy ? LIVE_MILLISECONDS : QUIET_MILLISECONDS;
    this.refresher.wanted = true;
  }

  tell(problem) {
    this.app.connection(!problem ? "live" : problem.passing ? "reconnecting" : null);
    this.app.problem(problem?.status === 0 ? null : problem, this.problems);
  }

  redraw() {
    const { batches, next } = this.page;
    this.table.update(
      batches,
      (batch) => batch.batch_id,
      (batch) => new BatchRow(batch),
      (known, batch) => known.update(batch),
    );
    const { cursor, ...filter } = this.parameters;
    show(this.first, cursor !== undefined);
    show(this.next, next !== null);
    mark(this.first, "href", listAddress(filter));
    mark(this.next, "href", listAddress({ ...filter, cursor: next ?? "" }));
    show(this.table.node, batches.length > 0);
    show(this.empty, batches.length === 0);
    if (batches.length === 0) {
      this.empty.replaceChildren(...explain(filter, next));
    }
  }

  end() {
    this.refresher.end();
  }
}

class BatchRow {
  constructor(batch) {
    this.badge = new Badge(batch.status);
    this.bar = new Bar(`Progress of ${visible(batch.title ?? batch.key)}`);
    this.percent = make("span", { class: "percent" });
    this.counts = make("span", { class: "counts" });
    this.submitted = make("time");
    this.taken = make("span");
    const name = make("a", { class: "name", href: `#/batches/${batch.batch_id}` }, shown(batch.title ?? batch.key));
    const beneath = [shown(batch.handler), ...(batch.title === null ? [] : [" · ", shown(batch.key)])];
    this.node = row(
      [name, make("span", { class: "beneath" }, beneath)],
      cell("State", this.badge.node),
      cell("Progress", make("div", { class: "progress" }, this.bar.node, this.percent), this.counts),
      cell("Submitted", this.submitted),
      cell("Time", this.taken),
    );
  }

  update(batch) {
    this.badge.update(batch.status);
    this.bar.update(batch);
    write(this.percent, `${percent(batch)} %`);
    write(this.counts, describe(batch));
    setTime(this.submitted, batch.created_at);
    write(this.taken, taken(batch));
  }
}

function listAddress(filter) {
  const given = Object.entries(filter).filter(([, value]) => value);
  return given.length === 0 ? "#/" : `#/?${new URLSearchParams(given)}`;
}

function explain(filter, next) {
  if (next !== null) {
    return [make("p", {}, "None on this page; there are older ones.")];
  }
  if (Object.keys(filter).length > 0) {
    return [make("p", {}, "No batch is like that."), make("a", { href: "#/" }, "Show all batches")];
  }
  return [
    make("p", {}, "There is no batch yet. One is submitted like this:"),
    make("pre", { tabindex: "0" }, "python starter.py submit HANDLER --items ITEMS.jsonl"),
  ];
}
