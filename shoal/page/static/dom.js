// Only these functions change the document. Text is inserted as text, never as markup.
export const at = (id) => document.getElementById(id);

// An element with attributes and children; a string child is text. Attributes named `on…` are listeners.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

// Text from a peer, isolated so that its writing direction does not affect the page.
export const foreign = (text, tag = "span", attributes = {}) =>
  make(tag, { ...attributes, class: `foreign ${attributes.class ?? ""}`.trim(), dir: "auto" }, text);

// Changes text only if it differs, so that a screen reader announces a change once.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

// Updates rows by key, in order. Unchanged rows keep their element, and so focus and selection.
export function rows(parent, items, key, build) {
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const name = String(key(item));
    const mark = JSON.stringify(item);
    const old = there.get(name);
    there.delete(name);
    if (old && old.dataset.mark === mark) return old;
    const fresh = build(item);
    fresh.dataset.key = name;
    fresh.dataset.mark = mark;
    if (old && old.contains(document.activeElement)) {
      requestAnimationFrame(() => fresh.querySelector("a, button")?.focus());
    }
    old?.remove();
    return fresh;
  });
  there.forEach((child) => child.remove());
  wanted.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
}

// Updates a list of pairs of a term and a value.
export function facts(list, pairs) {
  rows(list, pairs, (pair) => pair[0], ([term, value, note]) =>
    make("div", {}, make("dt", {}, term), make("dd", {}, value, note ? make("small", {}, note) : null)),
  );
}
