/** One batch: what it is, how far it is, what went wrong, and what may be done about it. */

import { api, Problem } from "./api.js";
import { Actions } from "./actions.js";
import { describe } from "./bar.js";
import { coalesced, make, show } from "./dom.js";
import { counted, settled } from "./formats.js";
import { FailureGroups } from "./failures.js";
import { Follower } from "./follower.js";
import { Happenings } from "./happenings.js";
import { ItemDialog } from "./item.js";
import { Items } from "./items.js";
import { Refresher } from "./refresher.js";
import { isClosed, stateWord } from "./states.js";
import { Summary } from "./summary.js";
import { Timeline } from "./timeline.js";

const LEAST_MILLISECONDS = { failures: 2_000, timeline: 4_000, items: 2_000, item: 2_000 };

export class BatchView {
  constructor(app, id, parameters) {
    this.app = app;
    this.id = id;
    this.title = "Batch";
    this.address = `#/batches/${encodeURIComponent(id)}`;
    this.status = null;
    this.draw = coalesced(() => this.redraw());
    this.build();
    this.refreshers = {
      failures: this.refresher("failures", async (signal) => this.failures.update(await api.failures(id, signal))),
      timeline: this.refresher("timeline", async (signal) => this.timeline.update(await api.timeline(id, signal))),
      items: this.refresher("items", (signal) => this.items.load(signal)),
      item: this.refresher("item", (signal) => this.item.load(signal)),
    };
    this.change(parameters);
    this.follower = new Follower(id, {
      status: (status) => this.take(status),
      event: (event) => this.happenings.add(event),
      reset: () => this.happenings.clear(),
      connection: (word) => app.connection(word),
      problem: (problem) => this.fail(problem),
    });
  }

  build() {
    const act = (verb, body) => this.act(verb, body);
    this.places = {
      stream: make("div"),
      act: make("div"),
      failures: make("div"),
      timeline: make("div"),
      item: make("div"),
    };
    this.problems = make("div", { role: "alert" }, Object.values(this.places));
    this.summary = new Summary(this.app);
    this.actions = new Actions(act);
    this.failures = new FailureGroups(this.address, act);
    this.timeline = new Timeline();
    this.items = new Items(this.id, this.address);
    this.places.items = this.items.problems;
    this.item = new ItemDialog(this.id, this.address, act);
    this.happenings = new Happenings(this.address);
    this.parts = make(
      "div",
      { class: "parts", hidden: true },
      this.summary.node,
      this.failures.node,
      make("div", { class: "columns" }, this.timeline.node, this.happenings.node),
      this.items.node,
    );
    const back = make("a", { class: "back", href: "#/" }, "All batches");
    this.top = make("div", { class: "heading", hidden: true }, this.summary.heading, this.actions.node);
    this.node = make("div", { class: "batch" }, back, this.top, this.problems, this.parts, this.item.node);
  }

  refresher(name, load) {
    // Whether the server can be reached is the stream's to tell.
    const told = (problem) => this.app.problem(problem?.status === 0 ? null : problem, this.places[name]);
    return new Refresher(load, LEAST_MILLISECONDS[name], told);
  }

  /** Takes the address's parameters: which items are looked for, and which one is open. */
  change(parameters) {
    const { item: before, ...filterBefore } = this.parameters ?? {};
    const { item, ...filter } = parameters;
    const changed = this.parameters === undefined || JSON.stringify(filter) !== JSON.stringify(filterBefore);
    this.parameters = parameters;
    if (changed) {
      this.items.change(filter);
      this.refreshers.items.end();
      this.refreshers.items = this.refresher("items", (signal) => this.items.load(signal));
      if (this.status !== null) {
        this.refreshers.items.ask();
      }
    }
    if (item !== before || (item !== undefined && !this.item.node.open)) {
      this.item.change(item);
      this.refreshers.item.ask(true);
    }
  }

  /** A status, as often as it comes: what is drawn of it is drawn once a frame. */
  take(status) {
    const before = this.status;
    if (before !== null && isOlder(status, before)) {
      return;
    }
    this.status = status;
    this.summary.pace.add(status);
    this.draw();
    if (before === null || status.status !== before.status || status.epoch !== before.epoch) {
      this.turn(before);
    }
    if (before === null || JSON.stringify(before) !== JSON.stringify(status)) {
      this.refresh(before);
    }
  }

  // A change of state is said aloud; every count would be noise.
  turn(before) {
    if (before !== null) {
      const closed = isClosed(this.status) ? `: ${describe(this.status)}` : "";
      this.app.announce(`${stateWord(this.status.status)}${closed}`);
    }
  }

  refresh(before) {
    if (this.status.purged_at !== null) {
      return;
    }
    if (this.status.failed > 0 || (before?.failed ?? 0) > 0) {
      this.refreshers.failures.ask();
    }
    this.refreshers.timeline.ask();
    this.refreshers.items.ask();
    if (this.item.unsettled) {
      this.refreshers.item.ask();
    }
  }

  redraw() {
    const { status } = this;
    if (this.ended) {
      return;
    }
    show(this.top, true);
    show(this.parts, true);
    this.title = status.title ?? status.key;
    this.app.title(this.title);
    this.summary.update(status);
    this.actions.update(status);
    const kept = status.purged_at === null;
    this.failures.setFailed(kept ? status.failed : 0);
    show(this.timeline.node, kept);
    show(this.items.node, kept);
  }

  /** Steers the batch; tells what came of it, and whether it went well. */
  async act(verb, body) {
    try {
      const answer = await api.steer(this.id, verb, body);
      this.places.act.replaceChildren();
      if (verb === "retry") {
        this.app.announce(`${counted(answer.reopened, "item")} will run again`);
      } else {
        this.take(answer);
      }
      // Whatever has crossed the answer on its way: a new stream begins with what is so now.
      this.follower.begin();
      if (this.item.node.open) {
        this.refreshers.item.ask(true);
      }
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) {
        throw error;
      }
      this.app.problem(error, this.places.act);
      return false;
    }
  }

  fail(problem) {
    this.app.problem(problem?.status === 0 ? null : problem, this.places.stream);
    if (problem !== null && !problem.passing) {
      this.app.connection(null);
    }
  }

  end() {
    this.ended = true;
    this.follower.end();
    for (const refresher of Object.values(this.refreshers)) {
      refresher.end();
    }
    this.summary.end();
    this.item.end();
  }
}

/** Whether an answer was overtaken by another: within an epoch settled items never become fewer. */
function isOlder(status, known) {
  return status.epoch < known.epoch || (status.epoch === known.epoch && settled(status) < settled(known));
}
