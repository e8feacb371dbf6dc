// Am I all right? One sentence, one colour and its word, and what the trainer does at this moment.
import { at, foreign, make, rows, say, show } from "./dom.js";
import { duration, has, moment, plural } from "./format.js";

const WORDS = { ok: "fine", warn: "look at this", bad: "not well", down: "down" };

export function right(peer) {
  const now = peer.right;
  at("right").dataset.state = now.state;
  say(at("right-word"), WORDS[now.state] ?? now.state);
  say(at("right-says"), sentence(now));
  show(at("right-do"), Boolean(now.do));
  say(at("right-do"), now.do);
  phase(now);
  const findings = now.findings ?? [];
  show(at("right-more"), findings.length > 0);
  rows(at("right-findings"), findings, (one) => one.check + one.says, finding);
}

// The sentence holds what changes seldom: a screen reader reads it out each time.
function sentence(now) {
  if (now.state !== "down") return `${now.says.replace(/\.$/, "")}.`;
  return has(now.down_since_unix) ? `Down since ${moment(now.down_since_unix)}: no node answers here.` : "No node answers here.";
}

function phase(now) {
  const doing = now.phase;
  show(at("right-phase"), Boolean(doing) || has(now.uptime_s));
  const parts = [];
  if (doing) {
    const name = has(doing.round) ? `at round ${doing.round}: ${doing.name}` : doing.name;
    if (doing.name) parts.push(`The trainer ${now.state === "down" ? "was" : "is"} ${name}${doing.since_s >= 1 ? `, since ${duration(doing.since_s)}` : ""}`);
    if (doing.of) parts.push(`${doing.done} of ${plural(doing.of, "answer")}`);
    if (has(doing.left_s) && doing.left_s >= 1) parts.push(`about ${duration(doing.left_s)} left`);
    if (doing.last_error) parts.push(`it failed before: ${doing.last_error}`);
  }
  if (has(now.uptime_s)) parts.push(`up ${duration(now.uptime_s)}`);
  say(at("phase-text"), parts.join(" · "));
  show(at("phase-bar"), Boolean(doing?.of));
  at("phase-bar").value = doing?.of ? doing.done / doing.of : 0;
}

export function finding(one) {
  return make(
    "li",
    { class: `state-${one.state}` },
    make("b", {}, one.check),
    foreign(one.says),
    one.do ? foreign(`→ ${one.do}`, "span", { class: "fine" }) : null,
    one.example ? foreign(one.example, "code", { class: "fine" }) : null,
  );
}
