// Is it learning? The figures, the curve of the whole run, and a small one for each family.
import { at, draw, facts, foreign, make, rows, say, show } from "./dom.js";
import { has, reward, share } from "./format.js";
import { Chart } from "./chart.js";
import { marks } from "./marks.js";
import { finding } from "./right.js";

const FIRST = "20 rounds";
let chart = null;

export function learning(peer) {
  const now = peer.learning;
  show(at("learning"), peer.kind === "node");
  say(at("learning-says"), now.says);
  show(at("learning-says"), Boolean(now.says));
  facts(at("learning-figures"), [
    ["own reward", reward(now.reward_own), has(now.reward_start) ? `${reward(now.reward_start)} in the first ${FIRST}` : "on fresh questions"],
    ["held out", share(now.held_out), has(now.held_out_start) ? `${share(now.held_out_start)} at the start` : "right at the first try"],
    ["rounds", String(now.round), null],
  ]);
  show(at("learning-findings"), now.findings.length > 0);
  rows(at("learning-findings"), now.findings, (one) => one.check + one.since, finding);
  marks(peer.marks ?? []);
  chart?.setMarks(peer.marks ?? []);
}

export function curves(history, peer) {
  chart ??= new Chart(at("chart"), at("chart-note"));
  chart.set(history, peer.learning.reward_start, peer.marks ?? []);
  families(history, peer);
}

export function setAxis(axis) {
  chart?.setAxis(axis);
}

export function setSpan(span) {
  chart?.setSpan(span);
}

function families(history, peer) {
  const known = new Map(peer.learning.families.map((one) => [one.name, one]));
  const names = [...new Set([...known.keys(), ...Object.keys(history.held_out).filter((name) => name !== "pass@1")])].sort();
  show(at("families"), names.length > 0);
  say(at("families-count"), String(names.length));
  const items = names.map((name) => ({ name, marks: history.held_out[name] ?? [], own: known.get(name) ?? null }));
  rows(at("families-grid"), items, (one) => one.name, family);
}

function family({ name, marks, own }) {
  const first = marks.at(0)?.[1];
  const last = marks.at(-1)?.[1];
  const text = marks.length ? `${share(first)} → ${share(last)}` : reward(own?.reward);
  return make("div", {}, make("p", {}, foreign(name), make("span", { class: "fine" }, text)), spark(marks, `${name}: held out ${text}`));
}

function spark(marks, label) {
  const width = 100;
  const height = 30;
  const from = marks.at(0)?.[0] ?? 0;
  const over = Math.max(1, (marks.at(-1)?.[0] ?? 1) - from);
  const points = marks.map(([x, y]) => `${(((x - from) / over) * width).toFixed(1)},${(height - 2 - y * (height - 4)).toFixed(1)}`);
  return draw(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("line", { class: "spark-base", x1: 0, x2: width, y1: height - 1, y2: height - 1 }),
    draw("polyline", { class: "spark", points: points.join(" ") }),
  );
}
