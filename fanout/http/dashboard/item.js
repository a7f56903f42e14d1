/** One item with everything that is known of it, in a dialog that the address opens. */

import { busy } from "./actions.js";
import { api } from "./api.js";
import { make, show } from "./dom.js";
import { number, time } from "./formats.js";
import { error, words } from "./happenings.js";
import { Badge } from "./states.js";
import { block, json, shown } from "./text.js";

const SETTLED = new Set(["completed", "failed", "cancelled"]);

export class ItemDialog {
  constructor(id, address, act) {
    this.id = id;
    this.address = address;
    this.badge = new Badge("pending");
    this.name = make("h2", { id: "item-title" });
    this.content = make("div", { class: "item-content" });
    this.retry = make(
      "button",
      {
        type: "button",
        class: "primary",
        hidden: true,
        onclick: (event) => busy(event.currentTarget, () => this.again(act)),
      },
      "Retry this item",
    );
    const close = make("button", { type: "button", onclick: () => this.node.close() }, "Close");
    this.node = make(
      "dialog",
      { class: "item", "aria-labelledby": "item-title", onclose: () => this.closed() },
      make("header", {}, this.badge.node, this.name),
      this.content,
      make("div", { class: "buttons" }, this.retry, close),
    );
  }

  /** Whether the item that is shown may still change by itself. */
  get unsettled() {
    return this.node.open && !SETTLED.has(this.item?.status);
  }

  /** Opens with an item, or closes with undefined. */
  change(key) {
    this.key = key;
    this.item = null;
    if (key === undefined) {
      this.node.close();
      return;
    }
    this.name.replaceChildren(shown(key));
    this.content.replaceChildren(make("p", { class: "muted" }, "Loading…"));
    show(this.retry, false);
    show(this.badge.node, false);
    if (!this.node.open) {
      // After the view itself is in the page.
      requestAnimationFrame(
        () => this.key === key && this.node.isConnected && !this.node.open && this.node.showModal(),
      );
    }
  }

  async load(signal) {
    const { key } = this;
    if (key === undefined) {
      return;
    }
    try {
      this.draw(await api.item(this.id, key, signal), key);
    } catch (problem) {
      if (problem.status !== 404) {
        throw problem;
      }
      if (key !== this.key) {
        return;
      }
      this.content.replaceChildren(make("p", { class: "notice bad" }, shown(problem.message)));
    }
  }

  draw(item, key) {
    const told = JSON.stringify(item);
    if (key !== this.key || told === JSON.stringify(this.item)) {
      return;
    }
    this.item = item;
    this.badge.update(item.status);
    show(this.badge.node, true);
    show(this.retry, item.status === "failed" || item.status === "cancelled");
    const { scrollTop } = this.content;
    this.content.replaceChildren(
      facts(item),
      ...part("Error", item.error === null ? null : errorParts(item.error)),
      ...part("Result", item.status === "completed" ? [block(json(item.result))] : null),
      ...part("Payload", [block(json(item.payload))]),
      ...part("History", item.history.length === 0 ? null : [history(item.history)]),
    );
    this.content.scrollTop = scrollTop;
  }

  again(act) {
    const status = this.item.status === "cancelled" ? "cancelled" : "failed";
    return act("retry", { items: [this.item.item_key], status });
  }

  // However it was closed, the address follows.
  closed() {
    if (this.key === undefined) {
      return;
    }
    const parameters = new URLSearchParams(location.hash.split("?")[1] ?? "");
    parameters.delete("item");
    this.key = undefined;
    location.hash = parameters.size === 0 ? this.address : `${this.address}?${parameters}`;
  }

  end() {
    this.key = undefined;
    this.node.close();
  }
}

function part(title, content) {
  return content === null ? [] : [make("section", {}, make("h3", {}, title), content)];
}

function facts(item) {
  const rows = [
    ["Position", number(item.seq)],
    ["Failed attempts", number(item.attempts)],
    ["Lost executions", item.crashes === 0 ? null : number(item.crashes)],
    ["Due", item.due_at === null ? null : time(item.due_at)],
    ["Claimed", item.claimed_at === null ? null : time(item.claimed_at)],
    ["Settled", item.settled_at === null ? null : time(item.settled_at)],
    ["Worker", item.worker === null ? null : shown(item.worker)],
  ];
  const given = rows.filter(([, value]) => value !== null);
  return make(
    "dl",
    { class: "facts" },
    given.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}

function errorParts(found) {
  const { type, code, message, traceback } = found;
  const head = make(
    "p",
    {},
    make("strong", {}, shown(type ?? "")),
    " ",
    make("span", { class: "beneath" }, shown(code ?? "")),
  );
  return [head, ...(message ? [block(message)] : []), ...(traceback ? [trace(traceback)] : [])];
}

const trace = (text) => make("details", {}, make("summary", {}, "Traceback"), block(text));

function history(events) {
  const entry = (event) =>
    make("li", {}, time(event.at), make("span", {}, words(event), error(event.data), messageOf(event.data)));
  return make("ol", { class: "happenings" }, events.map(entry));
}

function messageOf(data) {
  return typeof data.error?.message === "string" ? [": ", shown(data.error.message)] : null;
}
