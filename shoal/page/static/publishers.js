// Publishers: the signal that each one gave, this node included.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { count, has, latency, reward, share, signal } from "./format.js";

const REPUTATION = { fine: "fine", doubted: "doubted", banned: "banned", blocked: "blocked", me: "me" };
// `peers` are all peers of this page, by which a publisher may have a name.
export function publishers(peer, peers) {
  show(at("publishers"), peer.kind === "node");
  const names = new Map(peers.filter((one) => one.peer_id).map((one) => [one.peer_id, one.name]));
  const sum = peer.publishers.reduce((all, one) => all + one.signal, 0);
  const silent = new Set(peers.filter((one) => one.kind !== "node").map((one) => one.peer_id)); // a bootstrap publishes nothing
  const shown = peer.publishers.filter((one) => !silent.has(one.peer_id));
  const items = shown.map((one) => stable(one, names, sum, peer.health.state === "down"));
  rows(at("publishers-rows"), items, (one) => one.peer_id, row);
  say(at("publishers-none"), peer.health.state === "down" ? "No other publisher is recorded here." : "No rollouts from other nodes yet.");
  show(at("publishers-none"), shown.every((one) => one.is_local));
}

// Leaves out what changes at every request, so that a row is rebuilt only when its text changes.
// What a stopped node had received is not recorded.
function stable(one, names, sum, isDown) {
  const away = one.is_local ? "" : one.connected ? latency(has(one.latency_ms) ? Math.round(one.latency_ms) : null) : "gone";
  const who = (one.is_local && "this node") || names.get(one.peer_id) || one.name || one.short;
  return { ...one, latency_ms: null, banned_s: has(one.banned_s), away, who, part: sum > 0 ? one.signal / sum : null, given: isDown && !one.received ? "" : count(one.received) };
}

function row(one) {
  return make(
    "tr",
    { class: one.is_local ? "me" : "" },
    make("th", { scope: "row" }, one.is_local ? make("span", {}, one.who) : foreign(one.who, "span", { title: one.peer_id })),
    one.model ? foreign(one.model, "td") : make("td", { class: "fine" }, one.is_local ? "" : "no rollouts yet"),
    make("td", { class: "n", title: `${signal(one.signal)} in total` }, one.signal > 0 ? share(one.part) : ""),
    make("td", { class: "n" }, count(one.groups_trained)),
    make("td", { class: "n" }, one.given),
    make("td", { class: "n" }, one.received || has(one.reward) ? reward(one.reward) : ""),
    make("td", { class: "n" }, one.away + (one.relayed ? " (relay)" : "")),
    make("td", {}, make("span", { class: "tag", "data-state": one.reputation }, REPUTATION[one.reputation] ?? one.reputation)),
  );
}
