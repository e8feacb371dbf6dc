// Is it worth it? What came from others, beside what it costs here.
import { at, facts, say, show } from "./dom.js";

export function worth(peer) {
  const { says, came, costs } = peer.worth;
  say(at("worth-says"), says ? `${says}.` : "");
  show(at("worth-gain"), came.length > 0);
  facts(at("worth-came"), came.map((one) => [one.name, one.value, null]));
  facts(at("worth-costs"), costs.map((one) => [one.name, one.value, null]));
}
