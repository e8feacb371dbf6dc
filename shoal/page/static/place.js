// Where one is on the page, kept in the address so that it can be sent on: #/PEER/group/ID?reward=mixed
export const FILTERS = ["whose", "reward", "family", "publisher"];

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [peer = "", word = "", group = ""] = path.split("/").map(safely);
  const given = new URLSearchParams(query);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, given.get(name) ?? ""]));
  return { peer, group: word === "group" ? group : "", filters };
}

export function link(peer, group, filters) {
  const path = group ? `${encodeURIComponent(peer)}/group/${encodeURIComponent(group)}` : encodeURIComponent(peer);
  const given = new URLSearchParams(Object.entries(filters ?? {}).filter(([, value]) => value));
  return `#/${path}${given.size ? `?${given}` : ""}`;
}

function safely(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
