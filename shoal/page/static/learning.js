// Is it learning? The curve, one question before and now, and families; the figures are parts of the block.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { has, plural, reward } from "./format.js";
import { Chart } from "./chart.js";

let chart = null;
let known = null; // the history that the chart shows, with the name of its node

export function learning(peer) {
  show(at("learning"), peer.kind === "node");
  example(peer.learning);
}

// The same question in the first and in the latest evaluation; the first one chose it, by a miss.
function example(now) {
  const [first, latest] = [now.held_out_initial, now.held_out].map((one) => one?.example ?? null);
  const both = first && latest && first.question === latest.question && now.held_out.round > now.held_out_initial.round;
  show(at("example"), Boolean(both));
  if (!both) return;
  const answer = (one, evaluation) => ({ round: evaluation.round, text: one.answer || "(empty)", reward: one.reward });
  say(at("example-question"), first.question);
  rows(at("example-answers"), [answer(first, now.held_out_initial), answer(latest, now.held_out)], (one) => one.round, (one) =>
    make("li", { "data-earned": one.reward > 0 ? "yes" : "no" }, make("b", {}, one.round ? `after ${plural(one.round, "round")}` : "before training"), " ", foreign(one.text, "span", { class: "text mono" }), " ", make("span", { class: "fine" }, `reward ${reward(one.reward)}`)),
  );
}

export function curves(history, peer) {
  known = { name: peer.name, history };
  chart ??= new Chart(at("chart"), at("chart-note"));
  chart.set(history);
  families(history, peer);
}

const SMALL = { width: 120, height: 28 };

function families(history, peer) {
  const own = new Map(peer.learning.families.map((one) => [one.name, one.reward]));
  const names = [...new Set([...own.keys(), ...Object.keys(history.families)])].sort();
  show(at("families"), names.length > 0);
  const of = history.family_items;
  const right = (share) => (of ? String(Math.round(share * of)) : reward(share));
  const items = names.map((name) => {
    const points = history.families[name] ?? [];
    const [first, last] = [points[0]?.[1], points.at(-1)?.[1]];
    return { name, points, text: has(last) ? `${right(first)} → ${right(last)}${of ? ` of ${of}` : ""}` : "none held out", own: reward(own.get(name)) };
  });
  rows(at("families-list"), items, (one) => one.name, family);
}

function family({ name, points, text, own }) {
  return make("li", {}, make("b", { class: "foreign", dir: "auto" }, ...breakable(name)), make("span", { class: "figure" }, line(points), make("span", {}, text), make("span", { class: "fine" }, `own ${own}`)));
}

// A name that is longer than a line breaks after an underscore, not inside a word.
const breakable = (name) => name.split(/(?<=_)/).flatMap((word) => [word, make("wbr")]);

// A small curve of shares by round, which its text repeats.
function line(points) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${SMALL.width} ${SMALL.height}`);
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1, ...points.map(([round]) => round));
  const path = document.createElementNS(svg.namespaceURI, "polyline");
  path.setAttribute("points", points.map(([round, share]) => `${(2 + (round / most) * (SMALL.width - 4)).toFixed(1)},${(SMALL.height - 3 - share * (SMALL.height - 6)).toFixed(1)}`).join(" "));
  svg.append(path);
  return svg;
}

// The curve as a file: its points as CSV, or the chart as PNG.
at("save-csv").addEventListener("click", () => {
  if (!known) return;
  const names = ["round", "own_high", "own_low", "external", "own", "held_out", "held_out_low", "held_out_high"];
  const columns = known.history.points;
  const lines = columns[0].map((_, index) => columns.map((column) => column[index] ?? "").join(","));
  save(new Blob([[names.join(","), ...lines, ""].join("\n")], { type: "text/csv" }), "csv");
});

at("save-png").addEventListener("click", () => {
  at("chart").querySelector("canvas")?.toBlob((blob) => blob && save(blob, "png"), "image/png");
});

function save(blob, ending) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: `${known?.name.replace(/[^A-Za-z0-9._-]+/g, "-") ?? "node"}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1_000);
}
