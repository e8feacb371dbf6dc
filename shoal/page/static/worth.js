// Is it worth it? What came from others, beside what it costs here.
import { at, facts, say, show } from "./dom.js";
import { bytes, count, duration, has, reward, share } from "./format.js";

const rate = (value) => (has(value) ? `${bytes(value)}/s` : "–");
const cores = (value) => (has(value) ? `${Math.round(value * 100)} %` : "–");

export function worth(peer) {
  const { says, lately, cost, judge_score: judged } = peer.worth;
  const { node, trainer } = cost.processes;
  const down = peer.right.state === "down";
  say(at("worth-says"), says ? `${says}.` : "");
  const known = has(lately.others_signal_share);
  say(at("worth-came-head"), known ? `What came, in ${duration(lately.window_s)}` : "What came");
  const measured = has(cost.window_s) ? `, in ${down ? "its" : "the"} last ${duration(cost.window_s)}` : "";
  say(at("worth-costs-head"), `What it ${down ? "cost" : "costs"}${measured}`);
  show(at("worth-gain"), peer.kind === "node");
  facts(at("worth-came"), [
    ["learnt from others", share(lately.others_signal_share), null],
    ["groups with signal", count(known ? lately.groups_others : null), null],
    ["tokens saved", count(known ? lately.tokens_others : null), null],
    ...(has(judged) ? [["judge’s score", reward(judged), null]] : []),
  ]);
  facts(at("worth-costs"), [
    ["in", rate(cost.bytes_in_s), null],
    ["out", rate(cost.bytes_out_s), null],
    [trainer ? "CPU of the node" : "CPU", cores(node?.cpu), null],
    ...(trainer ? [["CPU of the trainer", cores(trainer.cpu), null]] : []),
    ["memory", trainer ? `${bytes(node?.rss_bytes)} + ${bytes(trainer.rss_bytes)}` : bytes(node?.rss_bytes), null],
    ["disk", bytes(cost.disk_bytes), null],
  ]);
}
