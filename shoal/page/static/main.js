// The page: the latest state, the selected peer, and the blocks that show it.
import { at, say, show } from "./dom.js";
import { clock } from "./format.js";
import { curves, learning } from "./learning.js";
import { meeting } from "./meeting.js";
import { now } from "./now.js";
import { overview } from "./overview.js";
import { publishers } from "./publishers.js";
import { refused } from "./refused.js";
import { right } from "./right.js";
import { readRoute } from "./route.js";
import { rollouts } from "./rollouts.js";
import { request, StatePoller } from "./state.js";
import { worth } from "./worth.js";

const CURVES_MS = 2_000;
const peers = new Map();
let chosen = null;
let curvesOf = "";
let curvesAt = 0;
let curvesRows = -1;
let curvesWaiting = 0;

function onState(state) {
  peers.clear();
  state.peers.forEach((peer) => peers.set(peer.name, peer));
  say(at("top-facts"), `shoal ${state.version}`);
  render();
}

function render() {
  const shown = [...peers.values()].filter((peer) => peer.health);
  const route = readRoute();
  chosen = shown.find((peer) => peer.name === route.peer) ?? shown.find((peer) => peer.kind === "node" && peer.health.state !== "down") ?? shown[0] ?? null;
  if (!chosen) return;
  at("main").dataset.kind = chosen.kind;
  const title = `${chosen.name} · shoal`;
  if (document.title !== title) document.title = title;
  say(at("title"), title);
  say(at("top-swarm"), `${chosen.name} of swarm ${chosen.swarm.name || "–"} ${chosen.swarm.digest.slice(0, 8)}`);
  for (const block of [right, learning, meeting, worth, refused, now]) block(chosen);
  publishers(chosen, shown);
  overview(shown, chosen);
  rollouts(chosen, route.group, shown);
  if (curvesOf !== chosen.name || curvesRows !== chosen.rows) loadCurves(chosen);
}

// Requests the curve when it has new points, at most every two seconds.
function loadCurves(peer) {
  if (peer.kind !== "node") return;
  const wait = curvesOf === peer.name ? curvesAt + CURVES_MS - Date.now() : 0;
  clearTimeout(curvesWaiting);
  if (wait > 0) {
    curvesWaiting = setTimeout(() => loadCurves(peer), wait);
    return;
  }
  [curvesOf, curvesAt, curvesRows] = [peer.name, Date.now(), peer.rows];
  request("/api/history", { peer: peer.name }).then(
    (history) => chosen?.name === peer.name && curves(history, chosen),
    () => {},
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
