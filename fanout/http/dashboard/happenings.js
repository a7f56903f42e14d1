/** The batch's latest events, the newest first. */

import { arrange, coalesced, make } from "./dom.js";
import { number, time } from "./formats.js";
import { stateWord } from "./states.js";
import { excerpt, shown } from "./text.js";

const KEPT = 50;
const WORDS = {
  submitted: "Submitted",
  started: "Started",
  paused: "Paused",
  resumed: "Resumed",
  cancelling: "Cancel asked for",
  reopened: "Retried",
  deadline_passed: "Deadline passed",
  budget_tripped: "Failure budget used up",
  breaker_opened: "Holds back",
  breaker_closed: "Goes on",
  blocked: "A handler blocks its loop",
  failed: "Failed",
  retrying: "Will be tried again",
  throttled: "Asked to wait",
  lost: "Lost with its worker",
  swept: "Brought on by the sweeper",
  slow: "Without progress for long",
};

export class Happenings {
  constructor(address) {
    this.address = address;
    this.newest = [];
    this.list = make("ol", { class: "happenings", tabindex: "0", "aria-labelledby": "happenings-title" });
    this.node = make(
      "section",
      { class: "card", "aria-labelledby": "happenings-title" },
      make("h2", { id: "happenings-title" }, "Latest events"),
      this.list,
    );
    this.draw = coalesced(() => this.redraw());
  }

  /** Keeps the newest ones alone, however many come. */
  add(event) {
    this.newest.unshift({ event });
    this.newest.length = Math.min(this.newest.length, KEPT);
    this.draw();
  }

  clear() {
    this.newest = [];
    this.draw();
  }

  redraw() {
    for (const each of this.newest) {
      each.node ??= this.entry(each.event);
    }
    arrange(
      this.list,
      this.newest.map((each) => each.node),
    );
  }

  entry(event) {
    const told = make("span", {}, words(event), this.item(event.data), error(event.data));
    return make("li", { "data-kind": event.kind }, time(event.at), told);
  }

  item(data) {
    if (typeof data.item_key !== "string") {
      return null;
    }
    const href = `${this.address}?${new URLSearchParams({ item: data.item_key })}`;
    return [" ", make("a", { href }, excerpt(data.item_key, 48))];
  }
}

/** What an event of an item or a batch says, in words. */
export function words({ kind, data }) {
  if (kind === "closed") {
    const failed = data.failed > 0 ? `, ${number(data.failed)} failed` : "";
    return `${stateWord(data.status)}: ${number(data.completed)} of ${number(data.total)}${failed}`;
  }
  return WORDS[kind] ?? kind.replaceAll("_", " ");
}

/** The error of an event, or nothing. */
export function error(data) {
  const type = data.error?.type ?? data.error_type;
  return typeof type === "string" ? [" · ", make("span", { class: "error-type" }, shown(type))] : null;
}
