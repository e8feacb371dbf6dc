// The page: the latest state, the selected peer, and the blocks that show it.
import { block } from "./blocks.js";
import { at, say, show } from "./dom.js";
import { clock } from "./format.js";
import { curves, learning } from "./learning.js";
import { now } from "./now.js";
import { overview } from "./overview.js";
import { right } from "./right.js";
import { readRoute } from "./route.js";
import { rollouts } from "./rollouts.js";
import { request, StatePoller } from "./state.js";

const PARTS = ["learning", "peers", "worth", "rollouts", "refused", "tasks", "settings"];
const CURVES_MS = 2_000;
const peers = new Map();
let chosen = null;
const MANY_CURVES = 16; // nodes whose curves are requested: beyond it a chart says nothing
const histories = new Map();
const asked = new Map(); // when, and at how many rows, each node's curves were requested

function onState(state) {
  peers.clear();
  state.peers.forEach((peer) => peers.set(peer.name, peer));
  say(at("top-facts"), `shoal ${state.version}`);
  render();
}

function render() {
  const shown = [...peers.values()].filter((peer) => peer.health);
  const route = readRoute();
  chosen = shown.find((peer) => peer.name === route.peer) ?? shown.find((peer) => peer.kind === "node" && peer.health.state !== "down") ?? shown.find((peer) => peer.kind === "node") ?? shown[0] ?? null;
  if (!chosen) return;
  at("main").dataset.kind = chosen.kind;
  const title = `${chosen.name} · shoal`;
  if (document.title !== title) document.title = title;
  say(at("title"), title);
  say(at("top-swarm"), `${chosen.name} of swarm ${chosen.swarm.name || "–"} ${chosen.swarm.digest.slice(0, 8)}`);
  const names = new Map(shown.filter((peer) => peer.peer_id).map((peer) => [peer.peer_id, peer.name]));
  const silent = new Set(shown.filter((peer) => peer.kind !== "node").map((peer) => peer.peer_id)); // a bootstrap publishes nothing
  const publishers = (part) => (part.rows && chosen.kind === "node" ? { ...part, rows: part.rows.filter(([first]) => !first.peer || !silent.has(first.peer)) } : part);
  for (const name of PARTS) block(name, name === "peers" ? chosen.blocks.peers.map(publishers) : chosen.blocks[name], { name: chosen.name, names, group: route.group });
  say(at("peers").querySelector("h2"), chosen.kind === "node" ? "Publishers" : "Connections");
  show(at("tasks"), chosen.added_tasks.length > 0);
  show(at("refused"), chosen.refused.counts.length + chosen.refused.recent.length > 0);
  for (const card of [right, learning, now]) card(chosen);
  rollouts(chosen, route.group);
  show(at("settings"), chosen.blocks.settings.length > 0);
  const nodes = shown.filter((peer) => peer.kind === "node");
  [chosen, ...nodes.slice(0, MANY_CURVES)].forEach(loadCurves);
  if (histories.has(chosen.name)) curves(histories.get(chosen.name), chosen);
  overview(shown, chosen, histories);
}

// Requests a node's curves when they have new points, at most every two seconds.
function loadCurves(peer) {
  const last = asked.get(peer.name);
  if (peer.kind !== "node" || last?.rows === peer.rows || (last && Date.now() - last.at < CURVES_MS)) return;
  asked.set(peer.name, { rows: peer.rows, at: Date.now() });
  request("/api/history", { peer: peer.name }).then(
    (history) => {
      histories.set(peer.name, history);
      render();
    },
    () => asked.delete(peer.name),
  );
}

function onLost(since) {
  show(at("lost"), since !== null);
  if (since) say(at("lost"), `No answer from the page’s server since ${clock(since / 1000)}: these numbers are from then. The page keeps trying; if the server was restarted, open the address that it printed.`);
}

addEventListener("hashchange", () => {
  // Before `render` rebuilds the row of the link, which would otherwise take the focus back.
  if (readRoute().group) at("group").focus({ preventScroll: matchMedia("(min-width: 46rem)").matches });
  render();
});
new StatePoller(onState, onLost);
if (location.search) history.replaceState(null, "", location.pathname + location.hash); // a token is no longer needed
