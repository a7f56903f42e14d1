/** Users' texts: shown whole, and so that no character can hide or turn what stands around it. */

import { make } from "./dom.js";

// Controls, marks of direction, and characters without width. Joiners stay: scripts and emoji need them.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]/u;
const HIDDEN_ON_ONE_LINE = new RegExp(`[\\t\\n]|${HIDDEN.source}`, "u");
const NAMES = { "\n": "↵", "\t": "⇥" };

/** A text on one line: hidden characters stand as their numbers, and its direction ends with it. */
export function shown(text) {
  return make("bdi", {}, ...pieces(String(text), HIDDEN_ON_ONE_LINE));
}

/** The same where only characters can stand: in the window's title, in a label for listeners. */
export function visible(text) {
  return shown(text).textContent;
}

/** A text of several lines, as it was written. */
export function block(text) {
  return make("pre", { tabindex: "0" }, make("bdi", {}, ...pieces(String(text), HIDDEN)));
}

/** The beginning of a text on one line. */
export function excerpt(text, characters = 160) {
  const all = [...String(text).slice(0, 2 * characters + 2)];
  return shown(all.length > characters ? `${all.slice(0, characters).join("")}…` : all.join(""));
}

function pieces(text, hidden) {
  if (!hidden.test(text)) {
    return [text];
  }
  const found = [];
  let plain = "";
  for (const character of text) {
    if (!hidden.test(character)) {
      plain += character;
      continue;
    }
    const number = `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    found.push(plain, make("span", { class: "hidden-character", title: number }, NAMES[character] ?? number));
    plain = "";
  }
  return [...found, plain].filter((piece) => piece !== "");
}

/** Any JSON value in lines; numbers that JavaScript cannot hold stand as they were written where the browser tells. */
export function json(value) {
  return JSON.stringify(value, null, 2) ?? "";
}

/** What a text of JSON says, its long numbers kept. */
export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || context?.source === undefined || JSON.rawJSON === undefined) {
      return value;
    }
    return Number.isSafeInteger(value) || String(value) === context.source ? value : JSON.rawJSON(context.source);
  });
}
