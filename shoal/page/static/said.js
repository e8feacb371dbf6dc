// What was said? The latest groups; one of them whole, at an address of its own.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { clock, count, has, plural, reward } from "./format.js";
import { link } from "./place.js";
import { ask } from "./stream.js";

const USED = { true: "trained on", false: "skipped" };
let shown = "";
let opened = "";

// `group` is the chosen one, empty where none is; `peers` are all of this page.
export function said(peer, group, peers) {
  show(at("said"), peer.kind === "node");
  if (peer.kind !== "node") return;
  const gone = peer.health.state === "down" && peer.rollouts.length === 0;
  say(at("said-none"), gone ? "The list ends with the node; shoal export data writes what is on disk." : "No answers yet.");
  show(at("said-none"), peer.rollouts.length === 0);
  show(at("group"), !gone || Boolean(group));
  const names = new Map(peers.map((one) => [one.peer_id, one.name]));
  const items = peer.rollouts.map((one) => ({
    id: one.group_id, family: one.family, is_local: one.is_local, publisher: one.publisher, by: names.get(one.publisher) ?? one.publisher.slice(-10), round: one.round, reward: one.reward,
    used: one.used ?? null, why: one.skip_reason ?? "", chosen: one.group_id === group, link: link(peer.name, one.group_id),
  }));
  rows(at("said-rows"), items, (one) => one.id, row);
  whole(peer, group || telling(peer.rollouts), !group);
}

// Where none is chosen: the newest whose answers earned different rewards, and it stays open while it is listed.
function telling(found) {
  if (found.some((one) => one.group_id === opened)) return opened;
  opened = (found.find(differ) ?? found[0])?.group_id ?? "";
  return opened;
}

function differ(one) {
  const earned = new Set(one.completions.map((each) => each.reward));
  return earned.size > 1 && !earned.has(null);
}

function row(one) {
  return make(
    "tr",
    { class: one.chosen ? "chosen" : "" },
    make("th", { scope: "row" }, make("a", { href: one.link, "aria-current": one.chosen ? "true" : null }, foreign(one.family))),
    make("td", {}, one.is_local ? "me" : foreign(one.by, "span", { title: one.publisher })),
    make("td", { class: "n" }, String(one.round)),
    make("td", { class: "n" }, has(one.reward) ? reward(one.reward) : make("span", { class: "fine" }, "not yet")),
    make("td", { title: one.why || null }, one.used === null ? make("span", { class: "fine" }, "queued") : USED[one.used]),
  );
}

async function whole(peer, group, isNewest) {
  const place = at("group");
  const which = `${peer.name} ${group}`;
  if (which === shown) return;
  shown = which;
  if (!group) {
    place.replaceChildren(make("p", { class: "empty" }, "Questions and answers stand here."));
    return;
  }
  place.replaceChildren(make("p", { class: "empty" }, "Asking the node for it …"));
  try {
    const found = await ask("/api/group", { peer: peer.name, id: group });
    if (which === shown) place.replaceChildren(...(isNewest ? [make("p", { class: "fine" }, `The latest group${differ(found) ? " whose answers earned different rewards" : ""}. Choose another on the left.`)] : []), ...texts(found));
  } catch (error) {
    if (which === shown) place.replaceChildren(make("p", { class: "empty" }, `It cannot be shown: ${error.message}.`));
  }
}

function texts(one) {
  const facts = [
    one.is_local ? "by this node" : null, `round ${one.round}`, `policy version ${one.policy_version}`,
    has(one.received_ms) ? `came ${clock(one.received_ms / 1000)}` : null,
    one.used === true ? "trained on" : one.used === false ? `skipped: ${one.skip_reason}` : "queued",
  ];
  return [
    make("h3", {}, foreign(one.family)),
    make("p", { class: "fine" }, foreign(one.model), " · ", foreign(one.publisher), ` · ${facts.filter(Boolean).join(" · ")}`),
    make("h3", {}, "The question"),
    foreign(one.question ?? "The node could not make this question again.", "p", { class: "text" }),
    one.expected ? make("p", { class: "fine" }, "expected: ", foreign(one.expected)) : null,
    make("h3", {}, plural(one.completions.length, one.completions.some((each) => each.turns) ? "game" : "answer")),
    make("ol", { class: "answers" }, ...one.completions.map((answer) => completion(answer, one))),
  ].filter(Boolean);
}

function completion(answer, one) {
  const rewards = one.completions.map((each) => each.reward);
  const mean = rewards.every(has) ? rewards.reduce((sum, each) => sum + each, 0) / rewards.length : null;
  const facts = [
    has(answer.reward) ? `reward ${reward(answer.reward)}` : "not scored yet",
    has(mean) && has(answer.reward) && new Set(rewards).size > 1 ? `${reward(Math.abs(answer.reward - mean))} ${answer.reward >= mean ? "above" : "below"} the group’s mean` : null,
    `${count(answer.tokens)} tokens`, answer.finish_reason === "length" ? (answer.turns ? "unfinished" : "cut at the token limit") : null,
  ];
  return make(
    "li",
    { "data-earned": has(answer.reward) ? (answer.reward > 0 ? "yes" : "no") : null },
    answer.turns ? dialogue(answer.turns) : foreign(answer.text || "(nothing)", "p", { class: "text answer mono" }),
    make("p", { class: "fine" }, facts.filter(Boolean).join(" · ")),
  );
}

// A game: what the policy said, and what the environment answered. Each turn says whose it is.
function dialogue(turns) {
  return make(
    "ol",
    { class: "dialogue" },
    ...turns.map((turn) => make("li", { "data-by": turn.role }, make("b", { class: "by" }, turn.role), " ", foreign(turn.text || "(nothing)", "span", { class: "text mono" }))),
  );
}
