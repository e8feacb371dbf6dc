// Neighbours around this node, each at an angle of its own: a peer is where it was yesterday.
import { draw } from "./dom.js";

export const MAX_SHOWN = 48;
const SIZE = 264;
const MIDDLE = SIZE / 2;
const RADIUS = 84;
const NAMES_UP_TO = 16;

// FNV-1a: the same place for the same peer, in every browser.
export function hash(text) {
  let value = 0x811c9dc5;
  for (let place = 0; place < text.length; place += 1) {
    value = Math.imul(value ^ text.charCodeAt(place), 0x01000193) >>> 0;
  }
  return value;
}

// Where names are written there are as many places as names have room for.
export function angles(ids) {
  const places = ids.length <= NAMES_UP_TO ? NAMES_UP_TO : MAX_SHOWN;
  const taken = new Set();
  const found = new Map();
  for (const id of [...ids].sort()) {
    let place = hash(id) % places;
    while (taken.has(place)) place = (place + 1) % places;
    taken.add(place);
    found.set(id, (place / places) * 2 * Math.PI);
  }
  return found;
}

export function ring(peers) {
  const others = peers.filter((one) => !one.mine).slice(0, MAX_SHOWN);
  const at = angles(others.map((one) => one.peer_id));
  const named = others.length <= NAMES_UP_TO;
  const connected = others.filter((one) => one.connected).length;
  const label = `This node and ${others.length} others, ${connected} of them connected; the table has the same.`;
  const picture = draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": label }, draw("circle", { class: "ring-orbit", cx: MIDDLE, cy: MIDDLE, r: RADIUS }));
  others.forEach((one) => picture.append(edge(one, at.get(one.peer_id))));
  others.forEach((one) => picture.append(node(one, at.get(one.peer_id), named)));
  picture.append(
    draw("circle", { class: "ring-me", cx: MIDDLE, cy: MIDDLE, r: 17 }),
    draw("text", { class: "ring-me-text", x: MIDDLE, y: MIDDLE + 3.5 }, "me"),
  );
  return picture;
}

function place(angle, radius) {
  return [MIDDLE + radius * Math.sin(angle), MIDDLE - radius * Math.cos(angle)];
}

function edge(one, angle) {
  const width = Math.min(9, 1.25 + Math.log2(1 + one.trained_10m));
  const lines = one.relayed ? [-2.5, 2.5] : [0];
  const group = draw("g", { class: one.connected ? "" : "ring-away" });
  for (const aside of lines) {
    const [dx, dy] = [aside * Math.cos(angle), aside * Math.sin(angle)];
    const [x1, y1] = place(angle, 19);
    const [x2, y2] = place(angle, RADIUS - 7);
    group.append(
      draw("line", { class: "ring-line", "data-state": one.verdict_state, x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy, "stroke-width": one.relayed ? Math.min(2, width) : width }),
    );
  }
  return group;
}

function node(one, angle, named) {
  const [x, y] = place(angle, RADIUS);
  const group = draw("g", { class: one.connected ? "" : "ring-away" }, draw("title", {}, `${one.short} · ${one.verdict_state}`), draw("circle", { class: "ring-peer", "data-state": one.verdict_state, cx: x, cy: y, r: named ? 6 : 4.5 }));
  if (named) {
    const [tx, ty] = place(angle, RADIUS + 26);
    group.append(draw("text", { x: tx, y: ty + 4 }, one.short.slice(-4)));
  }
  return group;
}
