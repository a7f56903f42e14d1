/** The head of a batch's page: its name and state, its counts, and the facts that are set. */

import { Bar } from "./bar.js";
import { make, mark, show, write } from "./dom.js";
import { counted, duration, number, percent, rate, setTime, taken } from "./formats.js";
import { Pace } from "./pace.js";
import { Badge, isClosed, ITEM_STATES, stateWord } from "./states.js";
import { shown, visible } from "./text.js";

const TICK_MILLISECONDS = 1_000;
const FACTS = [
  "Submitted",
  "Last progress",
  "Closed",
  "Runs for",
  "Took",
  "Deadline",
  "Failure budget",
  "Run",
  "Workers",
  "Duplicate starts",
];
const WHOLE = "Id";

export class Summary {
  constructor(app) {
    this.app = app;
    this.pace = new Pace();
    this.name = make("h1");
    this.beneath = make("p", { class: "beneath" });
    this.badge = new Badge("pending");
    this.heading = make("div", { class: "title" }, this.badge.node, this.name, this.beneath);
    this.bar = new Bar("Progress of this batch");
    this.percent = make("strong", { class: "big" });
    this.speed = make("span", { class: "speed" });
    this.counts = Object.fromEntries(ITEM_STATES.map((state) => [state, make("dd")]));
    this.notices = make("div");
    this.facts = Object.fromEntries([...FACTS, WHOLE].map((name) => [name, make("dd")]));
    this.factList = make("dl", { class: "facts" }, Object.entries(this.facts).map(factRow));
    const legend = ITEM_STATES.map((state) =>
      make("div", { "data-state": state }, make("dt", {}, stateWord(state)), this.counts[state]),
    );
    this.node = make(
      "section",
      { class: "card", "aria-label": "Summary" },
      this.notices,
      make("div", { class: "figures" }, this.percent, this.speed),
      this.bar.node,
      make("dl", { class: "legend" }, legend),
      this.factList,
    );
    this.timer = setInterval(() => this.status && this.tick(), TICK_MILLISECONDS);
  }

  update(status) {
    if (this.status?.batch_id !== status.batch_id) {
      this.name.replaceChildren(shown(status.title ?? status.key));
      const link = this.workflow(status);
      this.beneath.replaceChildren(
        shown(status.handler),
        ...(status.title === null ? [] : [" · ", shown(status.key)]),
        ...link,
      );
    }
    this.status = status;
    this.badge.update(status.status);
    this.bar.update(status);
    write(this.percent, `${percent(status)} %`);
    for (const state of ITEM_STATES) {
      write(this.counts[state], number(status[state]));
      mark(this.counts[state].parentNode, "data-none", status[state] === 0 ? "" : null);
    }
    const notices = tell(status);
    if (JSON.stringify(notices) !== this.told) {
      this.told = JSON.stringify(notices);
      this.notices.replaceChildren(...notices.map(notice));
    }
    this.updateFacts(status);
    this.tick();
  }

  workflow(status) {
    if (this.app.workflowsUrl === null) {
      return [];
    }
    const href = `${this.app.workflowsUrl}/${encodeURIComponent(status.workflow_id)}`;
    return [" · ", make("a", { href, target: "_blank", rel: "noreferrer" }, "Temporal Web UI")];
  }

  // What changes with time alone.
  tick() {
    const { status } = this;
    const perSecond = this.pace.rate(status);
    const left = this.pace.left(status);
    const parts = [perSecond === null ? null : rate(perSecond), left === null ? null : `about ${duration(left)} left`];
    write(this.speed, parts.filter((part) => part !== null).join(" · "));
    this.fact("Took", isClosed(status) ? taken(status) : null);
    this.fact("Runs for", isClosed(status) ? null : taken(status));
  }

  updateFacts(status) {
    this.factTime("Submitted", status.created_at);
    this.factTime("Closed", status.closed_at);
    this.factTime("Last progress", isClosed(status) ? null : status.progress_at);
    this.factTime("Deadline", status.deadline_at);
    this.fact("Failure budget", budget(status.max_failures));
    this.fact("Run", status.epoch > 1 ? number(status.epoch) : null);
    this.fact("Workers", isClosed(status) ? null : number(status.workers));
    this.fact("Duplicate starts", duplicates(status));
    this.fact(WHOLE, status.batch_id);
  }

  fact(name, text) {
    const place = this.facts[name];
    show(place.parentNode, text !== null);
    write(place, text ?? "");
  }

  factTime(name, at) {
    const place = this.facts[name];
    show(place.parentNode, at !== null);
    if (at !== null) {
      setTime(place.querySelector("time") ?? place.appendChild(make("time")), at);
    }
  }

  end() {
    clearInterval(this.timer);
  }
}

function factRow([name, place]) {
  return make("div", { class: name === WHOLE ? "whole" : null, hidden: true }, make("dt", {}, name), place);
}

function budget(most) {
  if (most === null) {
    return null;
  }
  return typeof most === "number" ? counted(most, "failure") : `${most} of all items`;
}

function duplicates(status) {
  if (status.duplicates === 0) {
    return null;
  }
  const origin = status.duplicate_origin === null ? "" : `, the last by ${visible(status.duplicate_origin)}`;
  return `${number(status.duplicates)}${origin}`;
}

/** What stands out, as [kind, words, a user's words, a time]. */
function tell(status) {
  const found = [];
  if (status.purged_at !== null) {
    found.push(["wait", "Its items and results were purged", null, status.purged_at]);
  }
  if (status.reason !== null) {
    found.push(why(status));
  }
  if (status.breaker !== null && !isClosed(status)) {
    const { error_type: type, until } = status.breaker;
    found.push(["wait", "Nothing starts: many items in a row failed alike. The next is tried", type, until]);
  }
  if (!isClosed(status) && status.workers === 0) {
    found.push(["bad", "No live worker knows the handler", status.handler, null]);
  }
  return found;
}

function why(status) {
  if (status.reason === "failure_budget") {
    const paused = status.status === "paused";
    return [
      "bad",
      paused ? "Paused: more items failed than its budget allows." : "More items failed than its budget allows.",
      null,
      null,
    ];
  }
  if (status.reason === "deadline") {
    return ["bad", "Its deadline passed before all items were settled.", null, null];
  }
  return ["wait", "Reason:", status.reason, null];
}

function notice([kind, words, quoted, at]) {
  const parts = [words];
  if (at !== null) {
    parts.push(" ", setTime(make("time"), at), quoted === null ? "." : ":");
  }
  if (quoted !== null) {
    parts.push(" ", make("q", {}, shown(quoted)));
  }
  return make("p", { class: `notice ${kind}` }, parts);
}
