// The selected peer and group, in the address so that it can be shared: #/PEER/group/ID
export function readRoute() {
  const [peer = "", view = "", group = ""] = location.hash.replace(/^#\/?/, "").split("/").map(safely);
  return { peer, group: view === "group" ? group : "" };
}

export const link = (peer, group) => `#/${encodeURIComponent(peer)}${group ? `/group/${encodeURIComponent(group)}` : ""}`;

function safely(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
