// Is it learning? The figures, the curve of the whole run, and a small one for each family.
import { at, facts, foreign, make, rows, say, show } from "./dom.js";
import { evaluated, has, plural, reward, sure } from "./format.js";
import { Chart } from "./chart.js";
import { finding } from "./right.js";

const FIRST = "20 rounds";
let chart = null;

export function learning(peer) {
  const now = peer.learning;
  show(at("learning"), peer.kind === "node");
  const early = now.state === "early" || !now.message ? "Too early to say." : "";
  say(at("learning-answer"), now.answer ? `${now.answer}.` : early);
  show(at("learning-answer"), Boolean(now.answer || early));
  // The trainer's own message, unless it only reports that nothing is wrong.
  const more = now.message && (now.state !== "ok" || !now.answer);
  say(at("learning-says"), more ? `${now.message}.` : "");
  show(at("learning-says"), Boolean(more));
  const [latest, initial] = [now.held_out, now.held_out_initial];
  const of = latest?.num_items ? `of ${plural(latest.num_items, "question")} never trained on` : "of questions never trained on";
  facts(at("learning-figures"), [
    ["held-out", evaluated(latest), initial && initial.round !== latest?.round ? `${of}; ${evaluated(initial, false)} at the start` : of],
    ["own reward", sure(now.reward_local, now.reward_local_ci95), has(now.reward_initial) ? `training questions, mean of 20 rounds; ${reward(now.reward_initial)} in the first ${FIRST}` : "training questions, mean of 20 rounds"],
    ["rounds", String(now.round), null],
  ]);
  show(at("learning-findings"), now.findings.length > 0);
  rows(at("learning-findings"), now.findings, (one) => one.check + one.since_round, finding);
}

export function curves(history, peer) {
  chart ??= new Chart(at("chart"), at("chart-note"));
  chart.set(history, peer.learning.reward_initial);
  families(history, peer);
}

function families(history, peer) {
  const known = new Map(peer.learning.families.map((one) => [one.name, one.reward]));
  const names = [...new Set([...known.keys(), ...Object.keys(history.held_out)])].sort();
  show(at("families"), names.length > 0);
  say(at("families-count"), String(names.length));
  const of = history.held_out_of_family;
  const right = (share) => (of ? `${Math.round(share * of)} of ${of}` : reward(share));
  const items = names.map((name) => {
    const [first, last] = history.held_out[name] ?? [];
    const heldOut = has(last) ? `held out ${right(first)} → ${right(last)}` : "no held-out questions";
    return { name, text: has(known.get(name)) ? `${heldOut} · own ${reward(known.get(name))}` : heldOut };
  });
  rows(at("families-list"), items, (one) => one.name, ({ name, text }) => make("li", {}, foreign(name, "b"), foreign(text)));
}
