// From whom? The ring, and the same as a table; oneself is a row of it.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { count, has, latency, reward, signal } from "./format.js";
import { ring } from "./ring.js";

const STANDING = { fine: "fine", doubted: "doubted", banned: "banned", blocked: "blocked", me: "me" };
let drawn = "";

export function whom(peer) {
  show(at("whom"), peer.kind === "node");
  const known = peer.publishers;
  const mark = JSON.stringify(known.map((one) => [one.peer_id, one.connected, one.relayed, one.verdict_state, one.trained_10m]));
  if (mark !== drawn) {
    drawn = mark;
    at("ring").replaceChildren(ring(known));
  }
  rows(at("whom-rows"), known.map(still), (one) => one.peer_id, row);
  say(at("whom-none"), peer.right.state === "down" ? "Nobody else is on record here." : "Nobody else has answered yet.");
  show(at("whom-none"), known.every((one) => one.mine));
}

// Without what changes at every look: a row is made anew only when it says something else.
function still(one) {
  const away = one.mine ? "" : one.connected ? latency(has(one.latency_ms) ? Math.round(one.latency_ms) : null) : "gone";
  return { ...one, latency_ms: null, last_s: null, banned_s: has(one.banned_s), away };
}

function row(one) {
  const who = one.mine ? make("span", {}, one.name || "this node") : foreign(one.name || one.short, "span", { title: one.peer_id });
  return make(
    "tr",
    { class: one.mine ? "me" : "" },
    make("th", { scope: "row" }, who),
    one.model ? foreign(one.model, "td") : make("td", { class: "fine" }, one.mine ? "" : "no answers yet"),
    make("td", { class: "n" }, signal(one.signal)),
    make("td", { class: "n" }, count(one.trained)),
    make("td", { class: "n" }, count(one.received)),
    make("td", { class: "n" }, one.received || has(one.reward) ? reward(one.reward) : ""),
    make("td", { class: "n" }, one.away + (one.relayed ? " (relay)" : "")),
    make("td", {}, make("span", { class: "tag", "data-state": one.verdict_state }, STANDING[one.verdict_state] ?? one.verdict_state)),
  );
}
