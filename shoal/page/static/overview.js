// Cards of several peers, as those of a local swarm; the blocks below show the selected one.
import { at, foreign, make, rows, show } from "./dom.js";
import { plural, reward, share } from "./format.js";
import { WORDS } from "./right.js";
import { link } from "./route.js";

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
  const connected = peer.publishers.filter((one) => !one.is_local && one.connected).length;
  const external = peer.benefit.last_hour.external_signal_share;
  return `round ${peer.learning.round} · reward ${reward(peer.learning.reward_local)} · ${plural(connected, "peer")}${external === null ? "" : ` · ${share(external)} of the signal from other nodes`}`;
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
