// Who taught whom how much: teachers on the left, learners on the right, a band as thick as the signal.
import { draw } from "./dom.js";
import { share } from "./format.js";

const MAX_TEACHERS = 6;
const WIDTH = 308;
const LEFT = 154;
const RIGHT = 62;
const BAR = 8;
const ROW = 30;
const GAP = 6;

// Of one node: each publisher's part of the signal it learnt from, the largest first.
export function taught(peer, names) {
  const parts = peer.publishers.filter((one) => one.signal > 0).map((one) => ({
    name: one.mine && names.size < 2 ? "its own answers" : (names.get(one.peer_id) ?? one.short), mine: one.mine, signal: one.signal,
  }));
  const sum = parts.reduce((all, one) => all + one.signal, 0);
  return parts.map((one) => ({ ...one, share: one.signal / sum })).sort((a, b) => b.share - a.share);
}

// `learners` are pairs of a name and what `taught` has of it.
export function flow(learners) {
  const teachers = new Map();
  for (const [, parts] of learners) for (const one of parts) teachers.set(one.name, { mine: one.mine, share: (teachers.get(one.name)?.share ?? 0) + one.share });
  const listed = [...teachers.entries()].sort((a, b) => b[1].share - a[1].share);
  const shown = listed.slice(0, MAX_TEACHERS).map(([name]) => name);
  const rest = listed.length - shown.length;
  const lines = rest ? [...shown, `${rest} more`] : shown;
  const height = Math.max(lines.length, learners.length * 2) * ROW + GAP;
  const scale = (height - GAP * Math.max(lines.length, learners.length)) / learners.length;
  const rows = learners.map(([learner, parts]) => [learner, lines.map((name) => (name === `${rest} more` ? parts.filter((one) => !shown.includes(one.name)) : parts.filter((one) => one.name === name)).reduce((all, one) => all + one.share, 0))]);
  const label = `Who taught whom: ${rows.map(([learner, found]) => `${learner} learnt ${found.map((one, at) => [one, at]).filter(([one]) => one > 0).map(([one, at]) => `${share(one)} from ${lines[at]}`).join(", ")}`).join("; ")}.`;
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  const from = [];
  let y = GAP / 2;
  lines.forEach((name, at) => {
    const thick = rows.reduce((all, [, found]) => all + found[at], 0) * scale;
    from.push(y);
    const tone = tones(at, teachers.get(name)?.mine && learners.length === 1);
    picture.append(draw("rect", { class: `flow-bar ${tone}`, x: LEFT, y, width: BAR, height: Math.max(1, thick) }));
    const alone = learners.length === 1 ? ` ${share(rows[0][1][at])}` : "";
    picture.append(draw("text", { x: LEFT - 6, y: y + thick / 2 + 4, class: "flow-from" }, `${short(name)}${alone}`));
    y += Math.max(thick, ROW - GAP * 2) + GAP;
  });
  let right = GAP / 2;
  for (const [learner, found] of rows) {
    picture.append(draw("rect", { class: "flow-bar flow-to", x: WIDTH - RIGHT, y: right, width: BAR, height: scale }));
    picture.append(draw("text", { x: WIDTH - RIGHT + 13, y: right + scale / 2 + 4, class: "flow-name" }, short(learner, 7)));
    let to = right;
    found.forEach((one, at) => {
      const thick = one * scale;
      if (thick <= 0) return;
      picture.append(ribbon(from[at], to, thick, tones(at, teachers.get(lines[at])?.mine && learners.length === 1)));
      from[at] += thick;
      to += thick;
    });
    right += scale + GAP;
  }
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${Math.ceil(Math.max(y, right))}`);
  return picture;
}

const tones = (at, own) => (own ? "tone-own" : `tone-${at % 4}`);
const short = (name, most = 15) => (name.length > most ? `…${name.slice(1 - most)}` : name);

function ribbon(y1, y2, thick, tone) {
  const [x1, x2] = [LEFT + BAR, WIDTH - RIGHT];
  const middle = (x1 + x2) / 2;
  const path = `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2} v${thick} C${middle} ${y2 + thick} ${middle} ${y1 + thick} ${x1} ${y1 + thick} z`;
  return draw("path", { class: `flow-ribbon ${tone}`, d: path });
}
