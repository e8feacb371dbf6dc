// Is it worth it? What came from others, beside what it costs here.
import { at, facts, say, show } from "./dom.js";

export function worth(peer) {
  const { message, gains, costs } = peer.benefit;
  say(at("worth-says"), message ? `${message}.` : "");
  show(at("worth-gain"), gains.length > 0);
  facts(at("worth-came"), gains.map((one) => [one.name, one.value, null]));
  facts(at("worth-costs"), costs.map((one) => [one.name, one.value, null]));
}
