// Is it worth it? What came from others, beside what it costs here.
import { at, facts, say, show } from "./dom.js";
import { bytes, count, has, reward, share } from "./format.js";

const rate = (value) => (has(value) ? `${bytes(value)}/s` : "–");
const cores = (value) => (has(value) ? `${Math.round(value * 100)} %` : "–");

export function worth(peer) {
  const now = peer.worth;
  say(at("worth-says"), now.says ? `${now.says}.` : peer.kind === "node" ? "Too early to say: nothing of others was trained on yet." : "What it costs to run this peer.");
  show(at("worth-share"), has(now.others_signal_share));
  at("worth-share-bar").style.width = `${Math.round((now.others_signal_share ?? 0) * 100)}%`;
  show(at("worth-gain"), peer.kind === "node");
  facts(at("worth-came"), [
    ["learnt from others", has(now.others_signal_share) ? share(now.others_signal_share) : "nothing yet", null],
    ["groups with signal", count(now.groups_with_signal_others), null],
    ["tokens not generated", count(now.tokens_not_generated), null],
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
