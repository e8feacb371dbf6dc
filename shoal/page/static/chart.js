// The curve of a run: own answers, others' answers, marks of held-out questions, where it started.
import { make, say } from "./dom.js";
import { duration } from "./format.js";
import { clusters, drawMarks, isDrawn, KEYS, spoken } from "./marks.js";

const HOUR_S = 3600;
const HEIGHT = 176;
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Chart {
  constructor(place, note) {
    this.place = place;
    this.note = note;
    this.axis = "x";
    this.span = "all";
    this.plot = null;
    this.marks = [];
    new ResizeObserver(() => this.resize()).observe(place);
    dark.addEventListener("change", () => this.build());
    note.append(key("c-own", "own answers, mean of 20 rounds"), key("c-others", "others’ answers"), key("c-held", "held out", "mark-point"), key("c-start", "first 20 rounds", "dashed"));
    this.keys = KEYS.map(([kinds, text, shape]) => [kinds, key("c-start", text, shape)]);
    note.append(...this.keys.map(([, label]) => label));
  }

  set(history, start, marks) {
    this.history = history;
    this.start = start;
    this.marks = marks;
    this.refresh();
  }

  setMarks(marks) {
    if (!this.history || JSON.stringify(marks) === JSON.stringify(this.marks)) return;
    this.marks = marks;
    this.plot?.redraw(false);
    this.describe();
  }

  setAxis(axis) {
    this.axis = axis;
    this.build();
  }

  setSpan(span) {
    this.span = span;
    this.refresh();
  }

  refresh() {
    if (!this.plot) return this.build();
    this.plot.setData(this.data());
    return this.describe();
  }

  data() {
    const { x, seconds, series, held_out: held } = this.history;
    const last = seconds.at(-1) ?? 0;
    const from = this.span === "hour" ? Math.max(0, last - HOUR_S) : -1;
    const points = new Map();
    const point = (place) => {
      if (!points.has(place)) points.set(place, [null, null, null, null]);
      return points.get(place);
    };
    x.forEach((round, place) => {
      if (seconds[place] < from) return;
      const values = point(this.axis === "x" ? round : seconds[place]);
      values[0] = series.own[place] ?? values[0];
      values[1] = series.others_mean[place] ?? values[1];
      values[2] = series.own_mean[place] ?? values[2];
    });
    for (const [round, value] of held["pass@1"] ?? []) {
      const when = secondsAt(x, seconds, round);
      if (when >= from) point(this.axis === "x" ? round : when)[3] = value;
    }
    const places = [...points.keys()].sort((a, b) => a - b);
    return [places, ...[0, 1, 2, 3].map((line) => places.map((place) => points.get(place)[line]))];
  }

  build() {
    if (!this.history) return;
    this.plot?.destroy();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const line = (name, width) => ({ stroke: colour(name), width, spanGaps: true, points: { show: false } });
    this.plot = new uPlot(
      {
        width: Math.max(120, this.place.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: true, y: false }, y: false },
        scales: { x: { time: false }, y: { range: (_plot, _least, most) => [0, Math.max(0.25, Math.min(1, (most || 0) * 1.15))] } },
        axes: [
          { ...axis, size: 26, space: 70, values: (_plot, at) => at.map((one) => (this.axis === "x" ? one : hours(one))) },
          { ...axis, size: 40, values: (_plot, at) => at.map((one) => one.toFixed(2)) },
        ],
        series: [
          {},
          { ...line("--accent", 1), alpha: 0.22 },
          line("--second", 1.75),
          line("--accent", 2.25),
          { stroke: colour("--third"), width: 0, paths: () => null, points: { show: true, size: 6, fill: colour("--third") } },
        ],
        hooks: { draw: [(plot) => this.drawStart(plot, colour("--soft")), (plot) => drawMarks(plot, this.clusters(plot), colour("--soft"))] },
      },
      this.data(),
      this.place,
    );
    this.describe();
  }

  drawStart(plot, stroke) {
    if (typeof this.start !== "number") return;
    const y = plot.valToPos(this.start, "y", true);
    const { left, width } = plot.bbox;
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + width, y);
    ctx.stroke();
    ctx.restore();
  }

  // Where marks stand on the screen: those of the span that is shown, those that touch as one.
  clusters(plot) {
    const { x, seconds } = this.history;
    const last = seconds.at(-1) ?? 0;
    const from = this.span === "hour" ? Math.max(0, last - HOUR_S) : -1;
    const shown = this.marks.map((mark) => ({ ...mark, seconds: secondsAt(x, seconds, mark.round) })).filter((mark) => mark.seconds >= from);
    const place = (mark) => plot.valToPos(this.axis === "x" ? Math.min(mark.round, x.at(-1) ?? 0) : mark.seconds, "x");
    return clusters(shown, place, plot.over.clientWidth);
  }

  describe() {
    for (const [kinds, label] of this.keys) label.hidden = !this.marks.some((mark) => kinds.includes(mark.kind) && isDrawn(mark));
    const own = this.history.series.own.filter((value) => value !== null);
    const curve = own.length
      ? `Own reward over ${this.history.rows} rounds: ${own[0].toFixed(2)} at first, ${own.at(-1).toFixed(2)} at last, ${Math.max(...own).toFixed(2)} at most.`
      : "No rounds yet.";
    const text = [curve, spoken(this.marks)].join(" ").trim();
    if (this.place.getAttribute("aria-label") !== text) this.place.setAttribute("aria-label", text);
  }

  resize() {
    const width = this.place.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }
}

function secondsAt(x, seconds, round) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < round) low = middle + 1;
    else high = middle;
  }
  return seconds[Math.min(low, seconds.length - 1)] ?? 0;
}

const hours = (seconds) => (seconds === 0 ? "0" : duration(seconds).replace(/ 0 (s|min|h)$/, ""));

function key(tone, text, shape = "") {
  const label = make("span", {});
  say(label, text);
  return make("span", { class: `key ${tone}` }, make("i", { class: shape, "aria-hidden": "true" }), label);
}
