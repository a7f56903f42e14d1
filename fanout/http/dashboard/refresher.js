/** Loads something again and again, at most so often, and only while somebody looks. */

import { Problem } from "./api.js";

const SHARE = 9;
const AGAIN_MILLISECONDS = 3_000;

export class Refresher {
  /** `load(signal)` is never run twice at once; it takes a tenth of the time at most, however slow the server is. */
  constructor(load, leastMilliseconds, told) {
    this.load = load;
    this.least = leastMilliseconds;
    this.told = told;
    this.wanted = false;
    this.free = true;
    this.ended = new AbortController();
    this.look = () => this.run();
    document.addEventListener("visibilitychange", this.look, { signal: this.ended.signal });
  }

  /** Loads as soon as it may be; `now` does not wait for the pause to pass. */
  ask(now = false) {
    this.wanted = true;
    if (now && !this.loading) {
      clearTimeout(this.timer);
      this.free = true;
    }
    this.run();
  }

  async run() {
    if (!this.wanted || !this.free || document.hidden || this.ended.signal.aborted) {
      return;
    }
    this.wanted = false;
    this.free = false;
    this.loading = true;
    const began = performance.now();
    let pause = AGAIN_MILLISECONDS;
    try {
      await this.load(this.ended.signal);
      pause = Math.max(this.least, SHARE * (performance.now() - began));
      this.told(null);
    } catch (error) {
      this.fail(error);
    }
    this.loading = false;
    this.timer = setTimeout(() => {
      this.free = true;
      this.run();
    }, pause);
  }

  fail(error) {
    if (this.ended.signal.aborted) {
      return;
    }
    if (!(error instanceof Problem)) {
      throw error;
    }
    // What may pass is tried again: no answer, and answers that say so themselves.
    this.wanted = this.wanted || error.passing;
    this.told(error);
  }

  end() {
    this.ended.abort();
    clearTimeout(this.timer);
  }
}
