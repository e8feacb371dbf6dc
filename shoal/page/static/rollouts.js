// One rollout group in full, with its own address.
import { at, foreign, make, show } from "./dom.js";
import { clock, has, plural, reward } from "./format.js";
import { request } from "./state.js";

let shown = "";
let opened = "";

// `group` is the selected one, empty for none.
export function rollouts(peer, group) {
  show(at("rollouts"), peer.kind === "node");
  if (peer.kind !== "node") return;
  show(at("group"), peer.health.state !== "down" || peer.rollouts.length > 0 || Boolean(group));
  whole(peer, group || informative(peer.rollouts), !group);
}

// The default group: the newest whose rewards differ. It stays open while it is listed.
function informative(found) {
  if (found.some((one) => one.group_id === opened)) return opened;
  opened = (found.find(differ) ?? found[0])?.group_id ?? "";
  return opened;
}

function differ(one) {
  const earned = new Set(one.completions.map((each) => each.reward));
  return earned.size > 1 && !earned.has(null);
}

async function whole(peer, group, isNewest) {
  const article = at("group");
  const which = `${peer.name} ${group}`;
  if (which === shown) return;
  shown = which;
  if (!group) {
    article.replaceChildren(make("p", { class: "empty" }, "Choose a group to see its prompt and completions."));
    return;
  }
  article.replaceChildren(make("p", { class: "empty" }, "Loading …"));
  try {
    const found = await request("/api/group", { peer: peer.name, id: group });
    if (which === shown) article.replaceChildren(...(isNewest ? [make("p", { class: "fine" }, `The latest group${differ(found) ? " with different rewards" : ""}. Choose another on the left.`)] : []), ...texts(found));
  } catch (error) {
    if (which === shown) article.replaceChildren(make("p", { class: "empty" }, `This group cannot be shown: ${error.message}.`));
  }
}

function texts(one) {
  const facts = [
    one.is_local ? "by this node" : null, `round ${one.round}`, `policy version ${one.policy_version}`,
    has(one.received_ms) ? `received ${clock(one.received_ms / 1000)}` : null,
    one.used === true ? "trained on" : one.used === false ? `skipped: ${one.skip_reason}` : "queued",
  ];
  return [
    make("h3", {}, foreign(one.family)),
    make("p", { class: "fine" }, foreign(one.model), " · ", foreign(one.publisher), ` · ${facts.filter(Boolean).join(" · ")}`),
    make("h3", {}, "Prompt"),
    foreign(one.question ?? "The node could not regenerate this prompt.", "p", { class: "text" }),
    one.expected ? make("p", { class: "fine" }, "expected: ", foreign(one.expected)) : null,
    make("h3", {}, plural(one.completions.length, one.completions.some((each) => each.turns) ? "game" : "completion")),
    make("ol", { class: "answers" }, ...one.completions.map((sample) => completion(sample, one))),
  ].filter(Boolean);
}

function completion(sample, one) {
  const rewards = one.completions.map((each) => each.reward);
  const mean = rewards.every(has) ? rewards.reduce((sum, each) => sum + each, 0) / rewards.length : null;
  const facts = [
    has(sample.reward) ? `reward ${reward(sample.reward)}` : "not scored yet",
    has(mean) && has(sample.reward) && new Set(rewards).size > 1 ? `${reward(Math.abs(sample.reward - mean))} ${sample.reward >= mean ? "above" : "below"} the group’s mean` : null,
    `${sample.tokens} tokens`, sample.finish_reason === "length" ? (sample.turns ? "unfinished" : "cut at the token limit") : null,
  ];
  return make(
    "li",
    { "data-earned": has(sample.reward) ? (sample.reward > 0 ? "yes" : "no") : null },
    sample.turns ? dialogue(sample.turns) : foreign(sample.text || "(empty)", "p", { class: "text answer mono" }),
    make("p", { class: "fine" }, facts.filter(Boolean).join(" · ")),
  );
}

// A game: the messages of the policy and of the environment, each with its role.
function dialogue(turns) {
  return make(
    "ol",
    { class: "dialogue" },
    ...turns.map((turn) => make("li", { "data-by": turn.role }, make("b", { class: "by" }, turn.role), " ", foreign(turn.text || "(empty)", "span", { class: "text mono" }))),
  );
}
