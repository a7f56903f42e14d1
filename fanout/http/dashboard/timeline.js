/** When the batch's items settled, drawn as columns. */

import { make, shape, show, write } from "./dom.js";
import { duration, number, rate, timeOfDay, worked } from "./formats.js";

const WIDTH = 600;
const HEIGHT = 120;
const STRIPES = "failed-stripes";
const PARTS = ["completed", "failed", "cancelled"];

export class Timeline {
  constructor() {
    this.text = make("p", { class: "muted", id: "timeline-text" });
    this.drawing = shape("svg", {
      class: "timeline",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-labelledby": "timeline-title",
      "aria-describedby": "timeline-text",
    });
    this.begin = make("span");
    this.end = make("span");
    this.axis = make("div", { class: "axis", "aria-hidden": "true" }, this.begin, this.end);
    this.node = make(
      "section",
      { class: "card", "aria-labelledby": "timeline-title" },
      make("h2", { id: "timeline-title" }, "Throughput"),
      this.drawing,
      this.axis,
      this.text,
    );
  }

  update(timeline) {
    const { spans } = timeline;
    const totals = spans.map((span) => PARTS.reduce((sum, part) => sum + span[part], 0));
    const peak = Math.max(1, ...totals);
    this.drawing.replaceChildren(
      stripes(),
      baseline(),
      ...spans.flatMap((span, place) => column(span, place, spans.length, peak)),
    );
    show(this.axis, true);
    write(this.begin, timeOfDay(timeline.begin));
    write(this.end, timeOfDay(timeline.end));
    write(this.text, describe(timeline, totals));
  }
}

// Failed items are striped as in the bars: no colour has to be told from another.
function stripes() {
  const properties = {
    id: STRIPES,
    width: 5,
    height: 5,
    patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)",
  };
  const parts = [
    shape("rect", { class: "ground", width: 5, height: 5 }),
    shape("rect", { class: "stripe", width: 3.5, height: 5 }),
  ];
  return shape("defs", {}, shape("pattern", properties, parts));
}

function baseline() {
  return shape("line", { x1: 0, y1: HEIGHT - 0.5, x2: WIDTH, y2: HEIGHT - 0.5, class: "baseline" });
}

function column(span, place, count, peak) {
  const width = WIDTH / count;
  let top = HEIGHT - 1;
  return PARTS.filter((part) => span[part] > 0).map((part) => {
    // What happened is seen, however small it is beside the rest.
    const height = Math.max(1.5, ((HEIGHT - 4) * span[part]) / peak);
    top -= height;
    const fill = part === "failed" ? `url(#${STRIPES})` : null;
    return shape("rect", {
      x: place * width + 0.5,
      y: top,
      width: Math.max(1, width - 1),
      height,
      "data-state": part,
      fill,
    });
  });
}

function describe({ spans, span_seconds: length, estimated }, totals) {
  const settled = sum(totals);
  if (settled === 0) {
    return "Nothing has settled yet.";
  }
  const ends = ["failed", "cancelled"].map((part) => [part, sum(spans.map((span) => span[part]))]);
  const told = ends.filter(([, count]) => count > 0).map(([part, count]) => `${number(count)} ${part}`);
  const whole = length * spans.length;
  const parts = [`${number(settled)} settled${told.length > 0 ? ` (${told.join(", ")})` : ""} in ${duration(whole)}`];
  const counts = spans.map(worked);
  if (sum(counts) > 0) {
    const most = Math.max(...counts);
    parts.push(`${rate(sum(counts) / whole)} on average`);
    parts.push(`most at ${timeOfDay(spans[counts.indexOf(most)].at)} with ${rate(most / length)}`);
  }
  return `${parts.join(", ")}.${estimated ? " Estimated from a sample." : ""}`;
}

function sum(counts) {
  return counts.reduce((one, other) => one + other, 0);
}
