// Renders the parts of a block, which shoal/view/blocks.py makes: lines, figures and tables.
import { at, facts, foreign, make, rows, say, show } from "./dom.js";
import { clock } from "./format.js";
import { link } from "./route.js";
import { seriesColour } from "./swarm_chart.js";

const WIDE = 32; // a longer text may wrap in its cell
const STATES = new Set(["ok", "warn", "bad", "down", "fine", "doubted", "banned", "blocked"]);
export const WORDS = { ok: "fine", warn: "warning", bad: "error", down: "down" };
const BUILD = { line: () => make("p", { class: "foreign", dir: "auto" }), figures, table };
const FILL = { line: fillLine, figures: fillFigures, table: fillTable };

// `around` has the name of the peer, the names of peers by their ids, and the chosen group.
export function block(name, parts, around) {
  const parent = at(`${name}-parts`);
  parts.forEach((part, index) => {
    const kind = part.rows ? "table" : part.facts ? "figures" : "line";
    let child = parent.children[index];
    if (child?.dataset.kind !== kind) {
      const fresh = BUILD[kind](name, part);
      fresh.dataset.kind = kind;
      child ? child.replaceWith(fresh) : parent.append(fresh);
      child = fresh;
    }
    FILL[kind](child, part, around);
  });
  while (parent.children.length > parts.length) parent.lastChild.remove();
}

function fillLine(element, { text, tone, note }) {
  element.className = `foreign line ${tone}`;
  element.title = note;
  say(element, text);
}

function figures(name) {
  return make("div", {}, make("h3", {}), make("dl", { class: name === "learning" ? "figures" : "facts" }));
}

function fillFigures(element, { title, facts: found }) {
  say(element.firstChild, title);
  show(element.firstChild, title !== "");
  facts(element.lastChild, found.map((one) => [one.name, one.value, [one.more, one.note].filter(Boolean).join("; ")]));
}

function table(name, { columns }) {
  const heads = columns.map(({ text, tone, note }) => make("th", { scope: "col", class: tone === "number" ? "n" : null, title: note || null }, text || "what to do"));
  const title = at(name).querySelector("h2").textContent;
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title} as a table` }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", { id: `${name}-rows` })));
}

function fillTable(element, { columns, rows: found }, around) {
  const seen = new Map();
  const numbers = columns.map((one) => one.tone === "number");
  const items = found.map((cells) => {
    const [first] = cells;
    const which = first.group || first.peer || (first.tone === "link" && first.text) || JSON.stringify(cells);
    seen.set(which, (seen.get(which) ?? 0) + 1);
    const names = cells.map(({ peer }) => around.names.get(peer) ?? null);
    const to = first.group ? link(around.name, first.group) : first.tone === "link" ? link(first.text) : null;
    const chosen = first.group ? first.group === around.group : first.tone === "link" && first.text === around.name;
    return { cells, names, numbers, to, chosen, colour: around.colours?.get(first.text) ?? null, key: `${which} ${seen.get(which)}` };
  });
  rows(element.querySelector("tbody"), items, (one) => one.key, row);
}

function row({ cells, names, numbers, to, chosen, colour }) {
  const made = cells.map((one, index) => {
    const text = one.at_ms === null ? (names[index] ?? one.text) : clock(one.at_ms / 1000);
    const attributes = { class: numbers[index] ? "n" : text.length > WIDE ? "wraps" : null, title: one.note || null };
    const inside = STATES.has(one.tone) ? make("span", { class: "tag", "data-state": one.tone }, WORDS[one.tone] ?? text) : foreign(text, "span", { title: one.peer || null });
    if (index) return make("td", attributes, inside);
    const content = to ? make("a", { href: to, "aria-current": chosen ? "true" : null }, inside) : inside;
    return make("th", { ...attributes, scope: "row" }, colour === null ? null : swatch(colour), content);
  });
  return make("tr", { class: chosen ? "chosen" : cells[0].tone || null }, ...made);
}

function swatch(colour) {
  const made = make("i", { class: "swatch", "aria-hidden": "true" });
  made.style.setProperty("--c", seriesColour(colour));
  return made;
}
