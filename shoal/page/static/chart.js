// The curve of a run: held-out evaluations first, own and external reward as thin lines.
import { make, say } from "./dom.js";

const HEIGHT = 176;
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Chart {
  constructor(container, note) {
    this.container = container;
    this.note = note;
    this.plot = null;
    new ResizeObserver(() => this.resize()).observe(container);
    dark.addEventListener("change", () => this.build());
    note.append(key("c-held", "held-out questions with their 95 % interval", "mark-point"), key("c-own", "own reward, mean of 20 rounds"), key("c-external", "external groups"));
  }

  set(history) {
    this.history = history;
    this.refresh();
  }

  refresh() {
    if (!this.plot) return this.build();
    this.plot.setData(this.data());
    return this.describe();
  }

  data() {
    return this.history.points.slice(0, 6);
  }

  build() {
    if (!this.history) return;
    this.plot?.destroy();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const line = (name, width) => ({ stroke: colour(name), width, spanGaps: true, points: { show: false } });
    this.plot = new uPlot(
      {
        width: Math.max(120, this.container.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: true, y: false }, y: false },
        scales: { x: { time: false }, y: { range: (_plot, _least, most) => [0, Math.max(0.25, Math.min(1, (most || 0) * 1.15))] } },
        axes: [
          { ...axis, size: 26, space: 70, values: (_plot, at) => at.map((one, index) => (index ? one : `round ${one}`)) },
          { ...axis, size: 40, values: (_plot, at) => at.map((one) => one.toFixed(2)) },
        ],
        series: [
          {},
          { ...line("--accent", 0), width: 0 },
          { ...line("--accent", 0), width: 0 },
          line("--second", 1),
          line("--soft", 1.25),
          { stroke: colour("--accent"), width: 3, spanGaps: true, points: { show: true, size: 7, fill: colour("--accent") } },
        ],
        hooks: { draw: [(plot) => this.drawIntervals(plot, colour("--accent"))] },
      },
      this.data(),
      this.container,
    );
    this.describe();
  }

  // Draws the 95 % interval of each held-out evaluation, from its number of questions.
  drawIntervals(plot, stroke) {
    const [rounds, low, high] = [0, 6, 7].map((column) => this.history.points[column]);
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = devicePixelRatio;
    ctx.globalAlpha = 0.5;
    ctx.beginPath();
    low.forEach((value, at) => {
      if (value === null) return;
      const x = plot.valToPos(rounds[at], "x", true);
      ctx.moveTo(x, plot.valToPos(Math.min(1, high[at]), "y", true));
      ctx.lineTo(x, plot.valToPos(Math.max(0, value), "y", true));
    });
    ctx.stroke();
    ctx.restore();
  }

  describe() {
    const [, , , , own, held] = this.history.points.map((column) => column.filter((value) => value !== null));
    const course = (values, words) => (values.length ? `${words} ${values[0].toFixed(2)} at the start, ${values.at(-1).toFixed(2)} now, ${Math.max(...values).toFixed(2)} at its highest.` : "");
    const text = [course(held, "Held-out accuracy:"), course(own, `Own reward over ${this.history.rows} rounds, as means of 20:`)].filter(Boolean).join(" ") || "No rounds yet.";
    if (this.container.getAttribute("aria-label") !== text) this.container.setAttribute("aria-label", text);
  }

  resize() {
    const width = this.container.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }
}

function key(tone, text, shape = "") {
  const label = make("span", {});
  say(label, text);
  return make("span", { class: `key ${tone}` }, make("i", { class: shape, "aria-hidden": "true" }), label);
}
