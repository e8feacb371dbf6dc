// Is it healthy? A sentence, a coloured state, and the phase of the trainer.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { duration, has, moment } from "./format.js";

export const WORDS = { ok: "fine", warn: "warning", bad: "error", down: "down" };

export function right(peer) {
  const now = peer.health;
  at("right").dataset.state = now.state;
  say(at("right-word"), WORDS[now.state] ?? now.state);
  say(at("right-says"), sentence(now));
  show(at("right-do"), Boolean(now.remedy));
  say(at("right-do"), now.remedy);
  phase(now);
  const findings = now.findings ?? [];
  show(at("right-more"), findings.length > 0);
  rows(at("right-findings"), findings, (one) => one.check + one.message, finding);
}

// The sentence has only what rarely changes: a screen reader announces each change.
function sentence(now) {
  if (now.state !== "down") return `${now.message.replace(/\.$/, "")}.`;
  return has(now.down_since_unix) ? `Down since ${moment(now.down_since_unix)}: no node answers here.` : "No node answers here.";
}

function phase(now) {
  const parts = [now.phase ? `The trainer: ${now.phase}` : null, now.last_error ? `the last trainer ended: ${now.last_error}` : null, has(now.uptime_s) ? `up ${duration(now.uptime_s)}` : null].filter(Boolean);
  show(at("right-phase"), parts.length > 0);
  say(at("phase-text"), parts.join(" · "));
  show(at("phase-bar"), Boolean(now.progress?.total));
  at("phase-bar").value = now.progress?.total ? now.progress.done / now.progress.total : 0;
}

export function finding(one) {
  return make(
    "li",
    { class: `state-${one.state}` },
    make("b", {}, one.check),
    foreign(one.message),
    one.remedy ? foreign(`→ ${one.remedy}`, "span", { class: "fine" }) : null,
    one.example ? foreign(one.example, "code", { class: "fine" }) : null,
  );
}
