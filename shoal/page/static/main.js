// The page: what it was told, which peer is looked at, and the seven blocks that show it.
import { at, say, show } from "./dom.js";
import { clock } from "./format.js";
import { curves, learning } from "./learning.js";
import { meeting } from "./meeting.js";
import { now } from "./now.js";
import { overview } from "./overview.js";
import { read } from "./place.js";
import { refused } from "./refused.js";
import { right } from "./right.js";
import { said } from "./said.js";
import { ask, Told } from "./stream.js";
import { whom } from "./whom.js";
import { worth } from "./worth.js";

const CURVES_MS = 2_000;
const peers = new Map();
let chosen = null;
let curvesOf = "";
let curvesAt = 0;
let curvesRows = -1;
let curvesWaiting = 0;

function told(state) {
  peers.clear();
  state.peers.forEach((peer) => peers.set(peer.name, peer));
  say(at("top-facts"), `shoal ${state.version}`);
  render();
}

function render() {
  const whole_ = [...peers.values()].filter((peer) => peer.health);
  const place = read();
  chosen = whole_.find((peer) => peer.name === place.peer) ?? whole_.find((peer) => peer.kind === "node" && peer.health.state !== "down") ?? whole_[0] ?? null;
  if (!chosen) return;
  at("main").dataset.kind = chosen.kind;
  const title = `${chosen.name} · shoal`;
  if (document.title !== title) document.title = title;
  say(at("title"), title);
  say(at("top-swarm"), `${chosen.name} of swarm ${chosen.swarm.name || "–"} ${chosen.swarm.digest.slice(0, 8)}`);
  for (const block of [right, learning, meeting, worth, refused, now]) block(chosen);
  whom(chosen, whole_);
  overview(whole_, chosen);
  said(chosen, place.group, whole_);
  if (curvesOf !== chosen.name || curvesRows !== chosen.rows) loadCurves(chosen);
}

// The curve is asked for when it has grown, at most every two seconds.
function loadCurves(peer) {
  if (peer.kind !== "node") return;
  const wait = curvesOf === peer.name ? curvesAt + CURVES_MS - Date.now() : 0;
  clearTimeout(curvesWaiting);
  if (wait > 0) {
    curvesWaiting = setTimeout(() => loadCurves(peer), wait);
    return;
  }
  [curvesOf, curvesAt, curvesRows] = [peer.name, Date.now(), peer.rows];
  ask("/api/history", { peer: peer.name }).then(
    (history) => chosen?.name === peer.name && curves(history, chosen),
    () => {},
  );
}

function lost(since) {
  show(at("lost"), since !== null);
  if (since) say(at("lost"), `This page has lost its process since ${clock(since / 1000)}: what you see is from then. It is looked for again; if it was started anew, open the address that it printed then.`);
}

addEventListener("hashchange", () => {
  // Before the row that was followed is made anew, which else would have the focus back.
  if (read().group) at("group").focus({ preventScroll: matchMedia("(min-width: 46rem)").matches });
  render();
});
new Told(told, lost);
if (location.search) history.replaceState(null, "", location.pathname + location.hash); // a token is no longer needed
