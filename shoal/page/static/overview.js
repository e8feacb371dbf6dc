// Several peers side by side, as those of a local swarm; one is looked at, whose blocks stand below.
import { at, foreign, make, rows, show } from "./dom.js";
import { plural, reward, share } from "./format.js";
import { link } from "./place.js";
import { WORDS } from "./right.js";


export function overview(peers, chosen) {
  show(at("overview"), peers.length > 1);
  if (peers.length < 2) return;
  const items = peers.map((peer) => ({
    name: peer.name, state: peer.health.state, message: brief(peer), chosen: peer.name === chosen.name,
  }));
  rows(at("overview"), items, (one) => one.name, card);
}

function brief(peer) {
  if (peer.health.state === "down") return "down";
  if (peer.kind !== "node") return peer.health.message.split(". ")[0];
  const others = peer.publishers.filter((one) => !one.is_local && one.connected).length;
  const learnt = peer.benefit.last_hour.external_signal_share;
  return `round ${peer.learning.round} · reward ${reward(peer.learning.reward_local)} · ${plural(others, "peer")}${learnt === null ? "" : ` · ${share(learnt)} learnt from others`}`;
}

function card(one) {
  return make(
    "a",
    { class: "peer-card", href: link(one.name), "aria-current": one.chosen ? "true" : null },
    foreign(one.name, "strong"),
    make("span", { class: "dot", "data-state": one.state, title: WORDS[one.state] }, make("span", { class: "unseen" }, WORDS[one.state])),
    make("span", { class: "fine" }, one.message),
  );
}
