// Next steps: commands for this peer, to copy.
import { at, foreign, make, rows, say } from "./dom.js";

const COPIED_MS = 2_000;

export function now(peer) {
  const lacks = peer.invitation_lacks;
  const message = lacks.length ? `an invitation; ${lacks.join("; ")}` : "send this to a friend, who joins by running it";
  const invited = peer.invitation ? [{ message, command: `shoal join ${peer.invitation}` }] : [];
  rows(at("now-list"), [...invited, ...peer.next_steps.slice(invited.length)], (one) => one.command, item); // the invitation replaces the command that prints it
}

function item({ message, command }) {
  const text = make("code", { class: "foreign", dir: "ltr", tabindex: "0", role: "region", "aria-label": message }, command);
  const button = make("button", { type: "button", "aria-label": `Copy: ${message}`, onclick: () => copy(command, text, button) }, "copy");
  return make("li", {}, foreign(message, "span", { class: "fine" }), make("div", { class: "command" }, text, button));
}

async function copy(command, text, button) {
  try {
    await navigator.clipboard.writeText(command);
    say(button, "copied");
    say(at("copied"), "Copied.");
  } catch {
    getSelection().selectAllChildren(text); // without clipboard access the user copies it
    say(button, "selected");
  }
  setTimeout(() => say(button, "copy"), COPIED_MS);
}
