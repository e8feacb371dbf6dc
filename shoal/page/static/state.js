// Requests the whole state from the page’s server, each second.
const EVERY_MS = 1_000;
const WITHIN_MS = 10_000;

export class StatePoller {
  constructor(onState, onLost) {
    this.onState = onState; // (state)
    this.onLost = onLost; // (since: Date | null)
    this.since = null;
    this.poll();
  }

  async poll() {
    const state = await request("/api/state", {}, AbortSignal.timeout(WITHIN_MS)).catch(() => null);
    if (state === null) this.onFailure();
    else if (this.since !== null) this.onLost((this.since = null));
    setTimeout(() => this.poll(), EVERY_MS);
    if (state !== null) this.onState(state);
  }

  onFailure() {
    if (this.since !== null) return;
    this.since = new Date();
    this.onLost(this.since);
  }
}

export async function request(path, parameters, signal) {
  const reply = await fetch(`${path}?${new URLSearchParams(parameters)}`, { cache: "no-store", signal });
  if (!reply.ok) throw new Error((await reply.json().catch(() => ({}))).error ?? `code ${reply.status}`);
  return reply.json();
}
