// Is it healthy? A sentence, a coloured state, and the phase of the trainer.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { WORDS } from "./blocks.js";
import { has, moment } from "./format.js";

export function right(peer) {
  const now = peer.health;
  at("right").dataset.state = now.state;
  say(at("right-word"), WORDS[now.state] ?? now.state);
  say(at("right-says"), sentence(now));
  show(at("right-do"), Boolean(now.remedy));
  say(at("right-do"), now.remedy);
  const more = peer.blocks.health.filter((one) => !one.tone).map((one) => one.text);
  show(at("right-phase"), more.length > 0);
  say(at("phase-text"), more.join(" · "));
  show(at("phase-bar"), Boolean(now.progress?.total));
  at("phase-bar").value = now.progress?.total ? now.progress.done / now.progress.total : 0;
  show(at("right-more"), now.findings.length > 0);
  rows(at("right-findings"), now.findings, (one) => one.check + one.message, finding);
}

// The sentence has only what rarely changes: a screen reader announces each change.
function sentence(now) {
  if (now.state !== "down") return `${now.message.replace(/\.$/, "")}.`;
  return has(now.down_since_unix) ? `Down since ${moment(now.down_since_unix)}: no node answers here.` : "No node answers here.";
}

function finding(one) {
  return make(
    "li",
    { class: `state-${one.state}` },
    make("b", {}, one.check),
    foreign(one.message),
    one.remedy ? foreign(`→ ${one.remedy}`, "span", { class: "fine" }) : null,
  );
}
