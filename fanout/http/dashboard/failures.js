/** The failed items by the code and type of their errors. */

import { busy } from "./actions.js";
import { arrange, make, mark, show, write } from "./dom.js";
import { number } from "./formats.js";
import { excerpt, shown } from "./text.js";

const HEADINGS = ["Error", "Items", "For example", ""];

export class FailureGroups {
  constructor(address, act) {
    this.address = address;
    this.act = act;
    this.rows = new Map();
    this.body = make("tbody", { role: "rowgroup" });
    this.note = make("p", { class: "muted", hidden: true });
    this.node = make(
      "section",
      { class: "card", hidden: true, "aria-labelledby": "failures-title" },
      make("h2", { id: "failures-title" }, "Failures"),
      make(
        "table",
        { role: "table", class: "failures" },
        make("caption", { class: "unseen" }, "Failed items by error"),
        make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, HEADINGS.map(heading))),
        this.body,
      ),
      this.note,
    );
  }

  setFailed(failed) {
    show(this.node, failed > 0);
  }

  update({ groups, estimated, left_out: leftOut }) {
    const rows = new Map();
    for (const group of groups) {
      const name = JSON.stringify([group.code, group.type]);
      const row = this.rows.get(name) ?? new GroupRow(this.address, group, this.act);
      row.update(group, estimated);
      rows.set(name, row);
    }
    this.rows = rows;
    arrange(this.body, [...rows.values()].map((row) => row.node));
    const sampled = estimated ? "Counts are estimates from a sample." : "";
    const others = leftOut > 0 ? `${number(leftOut)} smaller groups are not shown.` : "";
    write(this.note, `${sampled} ${others}`.trim());
    show(this.note, estimated || leftOut > 0);
  }
}

class GroupRow {
  constructor(address, group, act) {
    this.address = address;
    this.count = make("span", { class: "number" });
    this.example = make("span", { class: "message" });
    this.link = make("a");
    const only = `${address}?${new URLSearchParams({ status: "failed", error_type: group.type })}`;
    const retry = make(
      "button",
      { type: "button", onclick: (event) => busy(event.currentTarget, () => act("retry", { error_type: group.type })) },
      "Retry this type",
      make("span", { class: "unseen" }, ": ", shown(group.type)),
    );
    this.node = make(
      "tr",
      { role: "row" },
      make(
        "th",
        { role: "rowheader", scope: "row" },
        make("a", { href: only }, shown(group.type)),
        make("span", { class: "beneath" }, shown(group.code)),
      ),
      make("td", { role: "cell", "data-label": "Items" }, this.count),
      make("td", { role: "cell", "data-label": "For example" }, this.link, this.example),
      make("td", { role: "cell", class: "end" }, retry),
    );
  }

  update({ count, example }, estimated) {
    write(this.count, `${estimated ? "about " : ""}${number(count)}`);
    const told = JSON.stringify(example);
    if (example !== null && told !== this.told) {
      this.told = told;
      mark(this.link, "href", `${this.address}?${new URLSearchParams({ item: example.item_key })}`);
      this.link.replaceChildren(excerpt(example.item_key, 60));
      this.example.replaceChildren(excerpt(example.message));
    }
  }
}

const heading = (text) => (text === "" ? make("td", { role: "cell" }) : make("th", { role: "columnheader", scope: "col" }, text));
