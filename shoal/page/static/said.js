// What was said? The latest groups, filtered; one of them whole, at an address of its own.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { clock, count, has, plural, reward } from "./format.js";
import { FILTERS, link, read } from "./place.js";
import { ask } from "./stream.js";

const USED = { true: "trained on", false: "passed over" };
const EARNED = { mixed: "some answers", some: "all the same", none: "nothing", unknown: "not scored yet" };
let busy = false;
let again = false;
let shown = "";
let opened = "";

// The list is asked for when something new was said, and never twice at the same time.
export async function said(peer) {
  show(at("said"), peer.kind === "node");
  if (peer.kind !== "node") return;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const { filters, group } = read();
    const found = await ask("/api/groups", { peer: peer.name, ...filters });
    list(peer, found);
    if (!group) await whole(peer, telling(found.rows), true);
  } catch {
    // The banner says that the page is lost; what stands there stays.
  } finally {
    busy = false;
  }
  if (again) {
    again = false;
    await said(peer);
  }
}

// Where none is chosen: the newest whose answers earned different rewards, and it stays open while it is listed.
function telling(found) {
  if (found.some((one) => `${one.group_id}` === opened)) return opened;
  opened = (found.find((one) => one.earned === "mixed") ?? found[0])?.group_id ?? "";
  return opened;
}

export function chooseFilters(filters) {
  for (const name of FILTERS) {
    const select = at("said-filters").elements[name];
    if (filters[name] && ![...select.options].some((option) => option.value === filters[name])) {
      select.append(make("option", { value: filters[name] }, filters[name]));
    }
    select.value = filters[name];
  }
}

export function listenToFilters(changed) {
  at("said-filters").addEventListener("change", (event) => changed(event.target.name, event.target.value));
  at("said-filters").addEventListener("submit", (event) => event.preventDefault());
}

function list(peer, found) {
  const { group, filters } = read();
  options("family", found.families, filters.family);
  options("publisher", found.publishers, filters.publisher, (id) => id.slice(-10));
  const gone = peer.right.state === "down" && found.of === 0;
  say(at("said-count"), found.of === 0 ? "" : `${plural(found.rows.length, "group")} of the latest ${found.of}`);
  say(at("said-none"), gone ? "The list ends with the node; shoal export writes what is on disk." : found.of ? "No answers match these filters." : "No answers yet.");
  show(at("said-none"), found.rows.length === 0);
  show(at("group"), !gone || Boolean(group));
  const items = found.rows.map((one) => ({
    id: one.group_id, family: one.family, mine: one.own, publisher: one.publisher, round: one.round, reward: one.reward,
    earned: one.earned, used: one.used ?? null, why: one.why_unused ?? "",
    chosen: one.group_id === group, link: link(peer.name, one.group_id, filters),
  }));
  rows(at("said-rows"), items, (one) => one.id, row);
}

function options(name, values, chosen, text = (value) => value) {
  const select = at("said-filters").elements[name];
  const wanted = ["", ...new Set(chosen ? [...values, chosen] : values)];
  if ([...select.options].map((option) => option.value).join("\n") === wanted.join("\n")) return;
  select.replaceChildren(...wanted.map((value) => make("option", { value }, value ? text(value) : "all")));
  select.value = chosen;
}

function row(one) {
  return make(
    "tr",
    { class: one.chosen ? "chosen" : "" },
    make("th", { scope: "row" }, make("a", { href: one.link, "aria-current": one.chosen ? "true" : null }, foreign(one.family))),
    make("td", {}, one.mine ? "me" : foreign(one.publisher.slice(-10), "span", { title: one.publisher })),
    make("td", { class: "n" }, String(one.round)),
    make("td", { class: "n", title: EARNED[one.earned] }, has(one.reward) ? reward(one.reward) : make("span", { class: "fine" }, "not yet")),
    make("td", { title: one.why || null }, one.used === null ? make("span", { class: "fine" }, "waits") : USED[one.used]),
  );
}

// One group, whole. `group` is empty where none is chosen.
export async function whole(peer, group, isNewest = false) {
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
    if (which === shown) place.replaceChildren(...(isNewest ? [make("p", { class: "fine" }, "The latest group whose answers earned different rewards. Choose another on the left.")] : []), ...texts(found));
  } catch (error) {
    if (which === shown) place.replaceChildren(make("p", { class: "empty" }, `It cannot be shown: ${error.message}.`));
  }
}

function texts(one) {
  const facts = [
    one.own ? "by this node" : null, `round ${one.round}`, `policy version ${one.policy_version}`,
    has(one.received_ms) ? `came ${clock(one.received_ms / 1000)}` : null,
    one.used === true ? "trained on" : one.used === false ? `passed over: ${one.why_unused}` : "waits to be drawn",
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
    ...turns.map((turn) => make("li", { "data-by": turn.by }, make("b", { class: "by" }, turn.by), " ", foreign(turn.text || "(nothing)", "span", { class: "text mono" }))),
  );
}
