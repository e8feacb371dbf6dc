// All peers of the page: the held-out accuracy of each node in one chart, and a table beside it.
import { block } from "./blocks.js";
import { at, show } from "./dom.js";
import { seriesColour, SwarmChart } from "./swarm_chart.js";

let chart = null;

// `histories` has the curves of each node that were requested so far, by name.
export function overview(peers, chosen, histories) {
  show(at("overview"), peers.length > 1);
  if (peers.length < 2) return;
  const nodes = peers.filter((peer) => peer.kind === "node");
  const colours = new Map(nodes.map((peer, index) => [peer.name, index]));
  const [{ columns }] = chosen.blocks.overview;
  const rows = [...nodes, ...peers.filter((peer) => peer.kind !== "node")].map((peer) => {
    const [first, ...rest] = peer.blocks.overview[0].rows[0];
    return [{ ...first, text: peer.name }, ...rest];
  });
  block("overview", [{ columns, rows }], { name: chosen.name, names: new Map(), colours });
  chart ??= new SwarmChart(at("overview-chart"));
  chart.set(nodes.filter((peer) => histories.has(peer.name)).map((peer) => ({ name: peer.name, colour: colours.get(peer.name), history: histories.get(peer.name) })), chosen.name);
}
