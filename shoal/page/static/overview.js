// All peers of the page: the held-out accuracy of each node in one chart, and a table beside it.
import { at, foreign, make, rows, show } from "./dom.js";
import { duration, evaluated, has, reward } from "./format.js";
import { WORDS } from "./right.js";
import { link } from "./route.js";
import { seriesColour, SwarmChart } from "./swarm_chart.js";

let chart = null;

// `histories` has the curves of each node that were requested so far, by name.
export function overview(peers, chosen, histories) {
  show(at("overview"), peers.length > 1);
  if (peers.length < 2) return;
  const nodes = peers.filter((peer) => peer.kind === "node");
  const items = [...nodes, ...peers.filter((peer) => peer.kind !== "node")].map((peer) => ({
    name: peer.name, state: peer.health.state, kind: peer.kind, chosen: peer.name === chosen.name, colour: nodes.indexOf(peer),
    round: peer.kind === "node" ? String(peer.learning.round) : "", now: evaluated(peer.learning.held_out, false), start: evaluated(peer.learning.held_out_initial, false),
    own: reward(peer.learning.reward_local), left: has(peer.pace.remaining_s) && peer.pace.remaining_s > 0 ? duration(peer.pace.remaining_s) : "",
  }));
  rows(at("overview-rows"), items, (one) => one.name, row);
  const known = nodes.filter((peer) => histories.has(peer.name)).map((peer) => ({ name: peer.name, colour: nodes.indexOf(peer), history: histories.get(peer.name) }));
  chart ??= new SwarmChart(at("overview-chart"));
  chart.set(known, chosen.name);
}

function row(one) {
  const isNode = one.kind === "node";
  const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
  if (isNode) swatch.style.setProperty("--c", seriesColour(one.colour));
  return make(
    "tr",
    { class: one.chosen ? "chosen" : "" },
    make("th", { scope: "row" }, isNode ? swatch : null, make("a", { href: link(one.name), "aria-current": one.chosen ? "true" : null }, foreign(one.name))),
    make("td", {}, make("span", { class: "tag", "data-health": one.state }, WORDS[one.state])),
    ...(isNode ? [one.round, one.now, one.start, one.own, one.left] : ["", "", "", "", ""]).map((text) => make("td", { class: "n" }, text)),
  );
}
