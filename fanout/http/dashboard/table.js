/** Tables that stay tables to those who listen, also where a narrow page lays their rows out as blocks. */

import { arrange, make } from "./dom.js";

/** A table whose rows are kept from one page of data to the next, so that focus and selection stay. */
export class Table {
  /** The caption is for listeners; an empty heading stands over a column of buttons. */
  constructor(name, caption, headings) {
    this.rows = new Map();
    this.body = make("tbody", { role: "rowgroup" });
    this.node = make(
      "table",
      { role: "table", class: name },
      make("caption", { class: "unseen" }, caption),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, headings.map(heading))),
      this.body,
    );
  }

  /** Shows a row for each of `all`, in that order: those known by `name(each)` are updated, others built. */
  update(all, name, build, update) {
    const rows = new Map();
    for (const each of all) {
      const known = this.rows.get(name(each)) ?? build(each);
      update(known, each);
      rows.set(name(each), known);
    }
    this.rows = rows;
    const nodes = [...rows.values()].map((each) => each.node);
    arrange(this.body, nodes);
  }
}

/** A row, begun by what names it. */
export function row(name, ...cells) {
  return make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, name), cells);
}

/** A cell that brings its heading along. */
export function cell(label, ...content) {
  return make("td", { role: "cell", "data-label": label }, content);
}

function heading(text) {
  return text === "" ? make("td", { role: "cell" }) : make("th", { role: "columnheader", scope: "col" }, text);
}
