// What happened beside the rounds: drawn into the curve, and the same in words below it.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { moment, plural } from "./format.js";

const APART = { own: 12, peers: 28 }; // pixels; what lies nearer is drawn as one
const LISTED = 50;
const STARTS = ["started", "trainer"];
const PEERS = ["joined", "left"];

// Kinds, what the legend says of them, and the shape that stands for them there.
export const KEYS = [
  [STARTS, "started again", "mark-start"],
  [["model"], "another model", "mark-model"],
  [PEERS, "joined, left", "mark-peers"],
];

// Before the first round there is no curve that a start could turn.
export const isDrawn = (mark) => mark.round > 0 || PEERS.includes(mark.kind);

// Marks from the left to the right, each where `place(mark)` has it within `width`; peers' apart from the node's own.
export function clusters(marks, place, width) {
  const found = { own: [], peers: [] };
  const at = marks.filter(isDrawn).map((mark) => [place(mark), mark.kind]).filter(([x]) => x >= 0 && x <= width);
  for (const [x, kind] of at.sort((a, b) => a[0] - b[0])) {
    const whose = PEERS.includes(kind) ? "peers" : "own";
    const last = found[whose].at(-1);
    if (last && x - last.x < APART[whose]) last.kinds.add(kind);
    else found[whose].push({ x, kinds: new Set([kind]) });
  }
  return found;
}

// A line for a start, a firm one for a model; at the foot a peak for who joined, its reverse for who left.
export function drawMarks(plot, found, stroke) {
  const { ctx } = plot;
  const { left, top, height } = plot.bbox;
  const one = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = stroke;
  ctx.lineWidth = one;
  for (const { x, kinds } of found.own) {
    ctx.setLineDash(kinds.has("model") ? [] : [2 * one, 3 * one]);
    line(ctx, left + x * one, top, top + height);
  }
  ctx.globalAlpha = 0.6;
  for (const { x, kinds } of found.peers) {
    const middle = top + height - 5 * one;
    if (kinds.has("joined")) triangle(ctx, left + x * one, middle - 4 * one, middle, 3 * one);
    if (kinds.has("left")) triangle(ctx, left + x * one, middle + 4 * one, middle, 3 * one);
  }
  ctx.restore();
}

function line(ctx, x, from, to) {
  ctx.beginPath();
  ctx.moveTo(x, from);
  ctx.lineTo(x, to);
  ctx.stroke();
}

function triangle(ctx, x, peak, base, half) {
  ctx.beginPath();
  ctx.moveTo(x, peak);
  ctx.lineTo(x - half, base);
  ctx.lineTo(x + half, base);
  ctx.fill();
}

// For who does not see the curve: how often what happened.
export function spoken(marks) {
  const often = (...kinds) => marks.reduce((sum, mark) => sum + (kinds.includes(mark.kind) ? mark.count : 0), 0);
  const parts = [
    [often(...STARTS), (n) => plural(n, "start")],
    [often("model"), (n) => plural(n, "change of model", "changes of model")],
    [often("joined"), (n) => `${n} joined`],
    [often("left"), (n) => `${n} left`],
  ].filter(([n]) => n > 0);
  return parts.length ? `Meanwhile: ${parts.map(([n, text]) => text(n)).join(", ")}.` : "";
}

// The list below the curve, the latest first.
export function marks(all) {
  show(at("marks"), all.length > 0);
  say(at("marks-count"), String(all.length));
  const latest = all.slice(-LISTED).reverse();
  rows(at("marks-list"), latest, (one) => `${one.kind} ${one.at_unix}`, item);
}

function item(mark) {
  const when = mark.round > 0 ? `after round ${mark.round}` : "before the first round";
  return make("li", {}, make("span", { class: "fine" }, `${moment(mark.at_unix)}, ${when}: `), foreign(mark.says));
}
