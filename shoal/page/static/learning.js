// Is it learning? The figures, the curve of the whole run, and a small one for each family.
import { at, draw, facts, foreign, make, rows, say, show } from "./dom.js";
import { has, plural, reward, sure } from "./format.js";
import { Chart } from "./chart.js";
import { finding } from "./right.js";

const FIRST = "20 rounds";
let chart = null;

export function learning(peer) {
  const now = peer.learning;
  show(at("learning"), peer.kind === "node");
  const early = now.state === "early" || !now.says ? "Too early to say." : "";
  say(at("learning-answer"), now.answer ? `${now.answer}.` : early);
  show(at("learning-answer"), Boolean(now.answer || early));
  // The trainer's own sentence, where it says more than that nothing is wrong.
  const more = now.says && (now.state !== "ok" || !now.answer);
  say(at("learning-says"), more ? `${now.says}.` : "");
  show(at("learning-says"), Boolean(more));
  const of = now.held_out_items ? `of ${plural(now.held_out_items, "question")} never trained on` : "of questions never trained on";
  facts(at("learning-figures"), [
    ["own reward", sure(now.reward_own, now.reward_own_within), has(now.reward_start) ? `mean of 20 rounds; ${reward(now.reward_start)} in the first ${FIRST}` : "mean of 20 rounds"],
    ["held out", sure(now.held_out, now.held_out_within), has(now.held_out_start) ? `${of}; ${reward(now.held_out_start)} at the start` : of],
    ["rounds", String(now.round), null],
  ]);
  show(at("learning-findings"), now.findings.length > 0);
  rows(at("learning-findings"), now.findings, (one) => one.check + one.since, finding);
}

export function curves(history, peer) {
  chart ??= new Chart(at("chart"), at("chart-note"));
  chart.set(history, peer.learning.reward_start);
  families(history, peer);
}

function families(history, peer) {
  const known = new Map(peer.learning.families.map((one) => [one.name, one]));
  const names = [...new Set([...known.keys(), ...Object.keys(history.held_out).filter((name) => name !== "pass@1")])].sort();
  show(at("families"), names.length > 0);
  say(at("families-count"), String(names.length));
  const of = history.held_out_of_family;
  say(at("families-note"), `Held-out questions, right at the first try: from 0 to 1, at each evaluation${of ? `, of ${plural(of, "question")}` : ""}. The line is the own reward of late.`);
  const items = names.map((name) => ({ name, marks: history.held_out[name] ?? [], own: known.get(name) ?? null, of }));
  rows(at("families-grid"), items, (one) => one.name, family);
}

function family({ name, marks, own, of }) {
  const right = (share) => (of ? `${Math.round(share * of)} of ${of}` : reward(share));
  const held = marks.length ? `held out ${right(marks.at(0)[1])} → ${right(marks.at(-1)[1])}` : "no held-out questions";
  const text = has(own?.reward) ? `${held} · own ${reward(own.reward)}` : held;
  return make("div", {}, make("p", {}, foreign(name, "b")), spark(marks, own?.reward, `${name}: ${text}`), make("p", { class: "fine" }, text));
}

function spark(marks, own, label) {
  const width = 100;
  const height = 30;
  const from = marks.at(0)?.[0] ?? 0;
  const over = Math.max(1, (marks.at(-1)?.[0] ?? 1) - from);
  const points = marks.map(([x, y]) => `${(((x - from) / over) * width).toFixed(1)},${(height - 2 - y * (height - 4)).toFixed(1)}`);
  return draw(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("line", { class: "spark-base", x1: 0, x2: width, y1: height - 1, y2: height - 1 }),
    has(own) ? draw("line", { class: "spark-own", x1: 0, x2: width, y1: height - 2 - own * (height - 4), y2: height - 2 - own * (height - 4) }) : null,
    draw("polyline", { class: "spark", points: points.join(" ") }),
  );
}
