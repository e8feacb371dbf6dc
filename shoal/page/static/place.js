// Where one is on the page, kept in the address so that it can be sent on: #/PEER/group/ID
export function read() {
  const [peer = "", word = "", group = ""] = location.hash.replace(/^#\/?/, "").split("/").map(safely);
  return { peer, group: word === "group" ? group : "" };
}

export const link = (peer, group) => `#/${encodeURIComponent(peer)}${group ? `/group/${encodeURIComponent(group)}` : ""}`;

function safely(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
