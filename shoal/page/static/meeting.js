// Connections of a bootstrap or a judge, and its join addresses.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { duration, has, latency } from "./format.js";

export function meeting(peer) {
  const shown = peer.kind !== "node";
  show(at("meeting"), shown);
  if (!shown) return;
  say(at("meeting-head"), peer.connections.length ? `Connections (${peer.connections.length})` : "Connections");
  show(at("meeting-table"), peer.connections.length > 0);
  show(at("meeting-none"), peer.connections.length === 0);
  rows(at("meeting-rows"), peer.connections.map(stable), (one) => one.peer_id + one.address, row);
  rows(at("meeting-ways"), peer.join_addresses, (one) => one, (one) => foreign(one, "li", { class: "mono", dir: "ltr" }));
  show(at("meeting-ways").previousElementSibling, peer.join_addresses.length > 0);
}

// Times are rounded to the minute, so that a row is rebuilt only when its text changes.
function stable(one) {
  const since = one.connected_s < 60 ? "under a minute" : duration(60 * Math.floor(one.connected_s / 60)).replace(/ 0 s$/, "");
  const away = has(one.latency_ms) ? latency(Math.round(one.latency_ms)) : "";
  return { peer_id: one.peer_id, address: one.address.split("/p2p/")[0], relayed: one.relayed, agent: one.agent, since, away };
}

function row(one) {
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, foreign(one.peer_id.slice(-10), "span", { title: one.peer_id })),
    foreign(one.address + (one.relayed ? " (relay)" : ""), "td"),
    make("td", { class: "n" }, one.away),
    make("td", {}, one.since),
    foreign(one.agent, "td"),
  );
}
