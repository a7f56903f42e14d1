/** Follows one batch: its stream while it is open, and a look now and then once it is closed, as it may be retried. */

import { api, Problem } from "./api.js";
import { isClosed } from "./states.js";

const LOOK_MILLISECONDS = 3_000;
const LONGEST_LOOK_MILLISECONDS = 15_000;

export class Follower {
  /** `told` has `status(status)`, `event(event)`, `reset()`, `connection(word)` and `problem(problem)`. */
  constructor(id, told) {
    this.id = id;
    this.told = told;
    this.lastId = 0;
    this.failures = 0;
    this.ended = new AbortController();
    document.addEventListener("visibilitychange", () => this.begin(), { signal: this.ended.signal });
    this.begin();
  }

  /** Connects anew, as after a retry. A hidden page holds no connection: a browser has six for a server. */
  begin() {
    this.rest();
    if (!document.hidden && !this.ended.signal.aborted) {
      this.connect();
    }
  }

  connect() {
    const source = api.events(this.id);
    this.source = source;
    source.addEventListener("open", () => {
      this.failures = 0;
      this.told.connection("live");
    });
    for (const kind of ["snapshot", "progress"]) {
      source.addEventListener(kind, (message) => {
        this.told.connection("live");
        this.told.status(JSON.parse(message.data));
      });
    }
    source.addEventListener("stale", () => this.told.connection("stale"));
    source.addEventListener("event", (message) => this.take(message));
    source.addEventListener("closed", (message) => {
      this.take(message);
      this.check();
    });
    source.addEventListener("reset", () => {
      this.lastId = 0;
      this.told.reset();
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) {
        this.check();
      } else {
        this.told.connection("reconnecting");
      }
    });
  }

  // A new stream begins with events that an earlier one has brought.
  take(message) {
    const event = JSON.parse(message.data);
    if (event.id > this.lastId) {
      this.lastId = event.id;
      this.told.event(event);
    }
  }

  /** After the stream's end: what is so, and whether there is more to follow. */
  async check() {
    this.rest();
    try {
      const status = await api.batch(this.id, this.ended.signal);
      this.failures = 0;
      this.told.problem(null);
      if (document.hidden) {
        return;
      }
      this.told.status(status);
      if (isClosed(status)) {
        this.told.connection("closed");
        this.later(() => this.check(), LOOK_MILLISECONDS);
      } else {
        this.begin();
      }
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    if (this.ended.signal.aborted) {
      return;
    }
    if (!(error instanceof Problem)) {
      throw error;
    }
    this.failures += 1;
    this.told.problem(error);
    if (error.passing) {
      this.told.connection("reconnecting");
      this.later(() => this.check(), Math.min(LONGEST_LOOK_MILLISECONDS, LOOK_MILLISECONDS * this.failures));
    }
  }

  later(work, milliseconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(work, milliseconds);
  }

  rest() {
    this.source?.close();
    clearTimeout(this.timer);
  }

  end() {
    this.ended.abort();
    this.rest();
  }
}
