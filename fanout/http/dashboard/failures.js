/** The failed items by the code and type of their errors. */

import { busy } from "./actions.js";
import { make, mark, show, write } from "./dom.js";
import { number } from "./formats.js";
import { cell, row, Table } from "./table.js";
import { excerpt, shown } from "./text.js";

const FEW = 8;
const HEADINGS = ["Error", "Items", "For example", ""];

export class FailureGroups {
  constructor(address, act) {
    this.address = address;
    this.act = act;
    this.table = new Table("failures", "Failed items by error", HEADINGS);
    this.note = make("p", { class: "muted", hidden: true });
    this.more = make("button", { type: "button", hidden: true, onclick: () => this.showAll() });
    this.node = make(
      "section",
      { class: "card", hidden: true, "aria-labelledby": "failures-title" },
      make("h2", { id: "failures-title" }, "Failures"),
      this.table.node,
      this.note,
      make("div", { class: "pages" }, this.more),
    );
  }

  setFailed(failed) {
    show(this.node, failed > 0);
  }

  // Many kinds of errors would push the items out of sight.
  showAll() {
    this.all = true;
    this.update(this.failures);
    this.table.body.children[FEW]?.querySelector("a").focus();
  }

  update(failures) {
    this.failures = failures;
    const { groups, estimated, left_out: leftOut } = failures;
    show(this.more, !this.all && groups.length > FEW);
    write(this.more, `Show all ${number(groups.length)}`);
    this.table.update(
      this.all ? groups : groups.slice(0, FEW),
      (group) => JSON.stringify([group.code, group.type]),
      (group) => new GroupRow(this.address, group, this.act),
      (known, group) => known.update(group, estimated),
    );
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
    const alike = { error_type: group.type, error_code: group.code };
    const only = `${address}?${new URLSearchParams({ status: "failed", ...alike })}`;
    const retry = make(
      "button",
      { type: "button", onclick: (event) => busy(event.currentTarget, () => act("retry", alike)) },
      "Retry these",
      make("span", { class: "unseen" }, ": ", shown(group.type), ", ", shown(group.code)),
    );
    this.node = row(
      [make("a", { href: only }, shown(group.type)), make("span", { class: "beneath" }, shown(group.code))],
      cell("Items", this.count),
      cell("For example", this.link, this.example),
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
