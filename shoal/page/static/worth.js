// Is it worth it? The benefit from other nodes, and the cost on this machine.
import { at, facts, say, show } from "./dom.js";

export function worth(peer) {
  const { message, gains, costs } = peer.benefit;
  say(at("worth-says"), message ? `${message}.` : "");
  show(at("worth-gain"), gains.length > 0);
  facts(at("worth-gains"), gains.map((one) => [one.name, one.value, null]));
  say(at("worth-cost-head"), peer.health.state === "down" ? "Cost, before it stopped" : "Cost");
  facts(at("worth-costs"), costs.map((one) => [one.name, one.value, null]));
}
