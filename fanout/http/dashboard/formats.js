/** Numbers, durations and times as people read them. */

import { make, mark, write } from "./dom.js";

const NUMBER = new Intl.NumberFormat();
const SHORT = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const ABSOLUTE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "long" });
const SKEW_MILLISECONDS = 2_000;

/** The server's clock as this browser can tell it: its own may be minutes wrong. */
export const clock = {
  behind: 0,
  /** Takes the header `Date` of an answer that has just come. */
  set(date) {
    const difference = Date.parse(date) - Date.now();
    this.behind = Math.abs(difference) > SKEW_MILLISECONDS ? difference : 0;
  },
  now() {
    return Date.now() + this.behind;
  },
};

export const number = (value) => NUMBER.format(value);

/** "1 item", "2,000 items". */
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** Settled items of a hundred, rounded down, as the server does: 100 means all. */
export function percent(status) {
  return status.total === 0 ? 100 : Math.floor((100 * settled(status)) / status.total);
}

/** Those that ended by work; a cancelled item took none. */
export const worked = (counts) => counts.completed + counts.failed;

export const settled = (status) => worked(status) + status.cancelled;

/** "0.4 s", "48 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(seconds) {
  if (seconds < 10) {
    return `${SHORT.format(Math.max(0, Math.round(seconds * 10) / 10))} s`;
  }
  const whole = Math.round(seconds);
  const units = [
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, length]) => whole >= length);
  let rest = whole;
  const parts = [];
  for (const [name, length] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) {
      parts.push(`${number(count)} ${name}`);
    }
  }
  return parts.join(" ");
}

/** Items a second, or a minute where they are few. */
export function rate(perSecond) {
  return perSecond >= 1 || perSecond === 0 ? `${SHORT.format(perSecond)}/s` : `${SHORT.format(perSecond * 60)}/min`;
}

/** Seconds between two times of the server's. */
export const seconds = (from, to) => Math.max(0, (Date.parse(to) - Date.parse(from)) / 1_000);

/** Seconds from a time of the server's to now. */
export const secondsSince = (from) => Math.max(0, (clock.now() - Date.parse(from)) / 1_000);

export const timeOfDay = (at) => CLOCK.format(new Date(at));

function relative(at) {
  const ahead = (Date.parse(at) - clock.now()) / 1_000;
  const size = Math.abs(ahead);
  const units = [
    ["day", 86_400],
    ["hour", 3_600],
    ["minute", 60],
  ];
  const [unit, length] = units.find(([, each]) => size >= each) ?? ["second", 1];
  return unit === "second" && size < 5
    ? RELATIVE.format(0, "second")
    : RELATIVE.format(Math.trunc(ahead / length), unit);
}

/** A time: relative as text, absolute as title. */
export function time(at) {
  return setTime(make("time"), at);
}

export function setTime(node, at) {
  mark(node, "datetime", at);
  mark(node, "title", ABSOLUTE.format(new Date(at)));
  write(node, relative(at));
  return node;
}

/** Brings all relative times on the page up to date. */
export function refreshTimes() {
  for (const node of document.querySelectorAll("time[datetime]")) {
    write(node, relative(node.dateTime));
  }
}

/** How long a batch has run, or took. */
export function taken(batch) {
  if (batch.started_at === null) {
    return "–";
  }
  return duration(
    batch.closed_at === null ? secondsSince(batch.started_at) : seconds(batch.started_at, batch.closed_at),
  );
}
