/** A batch's progress as a bar. */

import { make, mark } from "./dom.js";
import { number, percent, settled } from "./formats.js";

const PARTS = ["completed", "failed", "cancelled", "processing"];

export class Bar {
  constructor(label) {
    this.parts = Object.fromEntries(
      PARTS.map((part) => [part, make("span", { class: "bar-part", "data-state": part })]),
    );
    const properties = {
      class: "bar",
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    };
    this.node = make(
      "div",
      properties,
      PARTS.map((part) => this.parts[part]),
    );
  }

  update(status) {
    for (const part of PARTS) {
      const share = status.total === 0 ? Number(part === "completed") : status[part] / status.total;
      this.parts[part].style.inlineSize = `${100 * share}%`;
      this.parts[part].hidden = share === 0;
    }
    mark(this.node, "aria-valuenow", percent(status));
    mark(this.node, "aria-valuetext", describe(status));
  }
}

/** "120 of 200 settled, 3 failed". */
export function describe(status) {
  const parts = [`${number(settled(status))} of ${number(status.total)} settled`];
  for (const part of ["failed", "cancelled"]) {
    if (status[part] > 0) {
      parts.push(`${number(status[part])} ${part}`);
    }
  }
  return parts.join(", ");
}
