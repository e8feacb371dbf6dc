// Formats numbers for people. Null means unknown and is shown as a dash.
const DASH = "–";

export const has = (value) => typeof value === "number" && Number.isFinite(value);

// Rewards and shares of correct answers lie in 0 to 1; `within` is half of a 95 % interval.
export const reward = (value) => (has(value) ? value.toFixed(2) : DASH);

export const sure = (value, within) => (has(value) && has(within) ? `${reward(value)} ± ${reward(within)}` : reward(value));

// A held-out evaluation: a share with its interval, or the count where the questions are few.
export const FEW_ITEMS = 30;
export function evaluated(one, withInterval = true) {
  if (!one) return DASH;
  if (one.num_items && one.num_items < FEW_ITEMS) return `${Math.round(one.pass_at_1 * one.num_items)} of ${one.num_items}`;
  return withInterval && has(one.low) && has(one.high) ? sure(one.pass_at_1, (one.high - one.low) / 2) : reward(one.pass_at_1);
}

export const share = (value) => (has(value) ? `${Math.round(value * 100)} %` : DASH);

export const count = (value) =>
  !has(value) ? DASH : value < 10_000 ? String(Math.round(value)) : short(value, 1000, ["", "k", "M", "G"]);

export const signal = (value) => (!has(value) ? DASH : value < 100 ? value.toFixed(1) : count(value));

export const latency = (value) => (has(value) ? (value < 10 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`) : DASH);

function short(value, step, units) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)}${units[unit]}`;
}

export function duration(seconds) {
  if (!has(seconds)) return DASH;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

export const clock = (unix) =>
  has(unix) && unix > 0
    ? new Date(unix * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : DASH;

// A time of day, with the date if it is not today.
export function moment(unix) {
  const date = new Date(unix * 1000);
  if (date.toDateString() === new Date().toDateString()) return clock(unix);
  return date.toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
