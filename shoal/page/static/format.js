// Formats what the browser knows better than the server: times of day. Others come from the server as text.
export const has = (value) => typeof value === "number" && Number.isFinite(value);

export const reward = (value) => (has(value) ? value.toFixed(3) : "–");

export const clock = (unix) =>
  has(unix) && unix > 0
    ? new Date(unix * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : "–";

// A time of day, with the date if it is not today.
export function moment(unix) {
  const date = new Date(unix * 1000);
  if (date.toDateString() === new Date().toDateString()) return clock(unix);
  return date.toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
