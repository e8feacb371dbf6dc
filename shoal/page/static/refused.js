// Refusals: counts by reason, and the latest ones with their remedies.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { clock, count } from "./format.js";

const MAX_COUNTS = 12;
const MAX_ROWS = 60;

export function refused(peer) {
  const { counts, recent } = peer.refused;
  rows(at("refused-counts"), counts.filter((one) => one.count > 0).slice(0, MAX_COUNTS), (one) => one.reason, counted);
  rows(at("refused-rows"), recent.slice(0, MAX_ROWS).map(numbered), (one) => one.key, row);
  show(at("refused-ring"), recent.length > 0);
  show(at("refused"), recent.length > 0 || counts.some((one) => one.count > 0));
}

// Two refusals may be identical; their position among those makes the key unique.
function numbered(one, index, all) {
  const mark = JSON.stringify(one);
  const before = all.slice(index + 1).filter((other) => JSON.stringify(other) === mark).length;
  return { ...one, key: `${mark}${before}` };
}

function counted(one) {
  return make("li", { title: one.remedy || null }, foreign(one.message || one.reason), make("b", {}, count(one.count)));
}

function row(one) {
  const peer = (id) => (id ? foreign(id.slice(-10), "span", { title: id }) : "");
  return make(
    "tr",
    {},
    make("td", {}, clock(one.at_ms / 1000)),
    make("td", { class: "wraps" }, foreign(one.message || one.reason), one.count > 1 ? ` × ${count(one.count)}` : null),
    make("td", {}, peer(one.signer)),
    make("td", {}, peer(one.forwarder)),
    foreign(one.family, "td"),
    foreign(one.remedy || "nothing", "td", { class: "wraps" }),
  );
}
