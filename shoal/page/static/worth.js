// Is it worth it? What came from others, beside what it costs here.
import { at, facts, say, show } from "./dom.js";
import { bytes, count, duration, has, reward, share } from "./format.js";

const rate = (value) => (has(value) ? `${bytes(value)}/s` : "–");
const cores = (value) => (has(value) ? `${Math.round(value * 100)} %` : "–");

export function worth(peer) {
  const now = peer.worth;
  const down = peer.right.state === "down";
  say(at("worth-says"), now.says ? `${now.says}.` : "What it costs to run this peer.");
  const known = has(now.others_signal_share);
  say(at("worth-came-head"), known ? `What came, in ${duration(now.window_s)}` : "What came");
  const measured = has(now.cost_window_s) ? `, in ${down ? "its" : "the"} last ${duration(now.cost_window_s)}` : "";
  say(at("worth-costs-head"), `What it ${down ? "cost" : "costs"}${measured}`);
  show(at("worth-share"), known);
  at("worth-share-bar").style.width = `${Math.round((now.others_signal_share ?? 0) * 100)}%`;
  show(at("worth-gain"), peer.kind === "node");
  facts(at("worth-came"), [
    ["learnt from others", share(now.others_signal_share), null],
    ["groups with signal", count(known ? now.groups_with_signal_others : null), null],
    ["tokens not generated", count(known ? now.tokens_not_generated : null), null],
    ...(has(now.judge_score) ? [["judge’s score", reward(now.judge_score), null]] : []),
  ]);
  const trains = has(now.cpu_trainer) || has(now.rss_trainer);
  facts(at("worth-costs"), [
    ["in", rate(now.bytes_in_s), null],
    ["out", rate(now.bytes_out_s), null],
    [trains ? "CPU of the node" : "CPU", cores(now.cpu_node), null],
    ...(trains ? [["CPU of the trainer", cores(now.cpu_trainer), null]] : []),
    ["memory", trains ? `${bytes(now.rss_node)} + ${bytes(now.rss_trainer)}` : bytes(now.rss_node), null],
    ["disk", bytes(now.disk_bytes), null],
  ]);
}
