/** How fast a batch's items are worked off, by what was seen of it; those that are cancelled are no work. */

import { secondsSince, seconds, settled, worked } from "./formats.js";

const WINDOW_MILLISECONDS = 15_000;
const LEAST_MILLISECONDS = 1_500;
const MOST_SAMPLES = 200;

export class Pace {
  constructor() {
    this.samples = [];
  }

  /** Takes a status; a retry begins anew, as fewer are settled then. */
  add(status) {
    const now = performance.now();
    const count = worked(status);
    if (this.samples.length > 0 && (count < this.samples.at(-1).count || status.epoch !== this.epoch)) {
      this.samples = [];
    }
    this.epoch = status.epoch;
    this.samples.push({ now, count });
    while (this.samples.length > MOST_SAMPLES || now - this.samples[0].now > WINDOW_MILLISECONDS) {
      this.samples.shift();
    }
  }

  /** Items a second of late; of a closed batch from its start to its close. Null where it cannot be told. */
  rate(status) {
    if (status.closed_at !== null) {
      const taken = status.started_at === null ? 0 : seconds(status.started_at, status.closed_at);
      return status.epoch === 1 && taken > 0 ? worked(status) / taken : null;
    }
    const [first] = this.samples;
    const age = first === undefined ? 0 : performance.now() - first.now;
    if (age > LEAST_MILLISECONDS) {
      return ((worked(status) - first.count) * 1_000) / age;
    }
    const running = status.started_at === null ? 0 : secondsSince(status.started_at);
    return status.epoch === 1 && status.status === "processing" && running > 1 ? worked(status) / running : null;
  }

  /** Seconds until all are settled at that rate, or null. */
  left(status) {
    const open = status.total - settled(status);
    const found = this.rate(status);
    return status.status !== "processing" || !found || open === 0 ? null : open / found;
  }
}
