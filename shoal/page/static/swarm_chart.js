// The held-out accuracy of several nodes by round, a line each; the selected one is thicker.
const HEIGHT = 144;
const dark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT_COLOURS = ["#0a6683", "#a2530b", "#5b4bb0", "#1b6e45", "#a8231c", "#7a5c00", "#8a2a73", "#3d5560"];
const DARK_COLOURS = ["#62bfdf", "#eba05c", "#b0a3f5", "#66cc98", "#ff9189", "#dcc25a", "#e795d2", "#a3b1ba"];

// Beyond eight nodes colours repeat; the table has every number.
export const seriesColour = (index) => (dark.matches ? DARK_COLOURS : LIGHT_COLOURS)[index % LIGHT_COLOURS.length];

export class SwarmChart {
  constructor(container) {
    this.container = container;
    this.plot = null;
    this.mark = "";
    new ResizeObserver(() => this.resize()).observe(container);
    dark.addEventListener("change", () => this.build());
  }

  // `nodes` are rows of name, colour and history.
  set(nodes, chosen) {
    const mark = JSON.stringify([chosen, ...nodes.map((one) => [one.name, one.history.rows])]);
    if (mark === this.mark) return;
    [this.mark, this.nodes, this.chosen] = [mark, nodes, chosen];
    this.build();
  }

  build() {
    if (!this.nodes) return;
    this.plot?.destroy();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const tables = this.nodes.map((one) => evaluations(one.history));
    this.plot = new uPlot(
      {
        width: Math.max(120, this.container.clientWidth), height: HEIGHT, legend: { show: false }, cursor: { show: false },
        scales: { x: { time: false }, y: { range: (_plot, _least, most) => [0, Math.max(0.25, Math.min(1, (most || 0) * 1.15))] } },
        axes: [
          { ...axis, size: 26, space: 70, values: (_plot, at) => at.map((one, index) => (index ? one : `round ${one}`)) },
          { ...axis, size: 40, values: (_plot, at) => at.map((one) => one.toFixed(2)) },
        ],
        series: [{}, ...this.nodes.map((one) => ({ stroke: seriesColour(one.colour), width: one.name === this.chosen ? 3 : 1.75, spanGaps: true, points: { show: true, size: 5, fill: seriesColour(one.colour) } }))],
      },
      tables.length ? uPlot.join(tables) : [[]],
      this.container,
    );
    this.container.setAttribute("aria-label", `Held-out accuracy by round of ${this.nodes.map((one) => one.name).join(", ")}; the table has the numbers.`);
  }

  resize() {
    const width = this.container.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }
}

// The evaluations among a history's points, as columns.
function evaluations(history) {
  const [rounds, shares] = [history.points[0], history.points[5]];
  const at = rounds.map((_, index) => index).filter((index) => shares[index] !== null);
  return [at.map((index) => rounds[index]), at.map((index) => shares[index])];
}
