// What the page is told: everything, each second, as the process that serves it has it.
const EVERY_MS = 1_000;
const WITHIN_MS = 10_000;

export class Told {
  constructor(told, lost) {
    this.told = told; // (state)
    this.lost = lost; // (since: Date | null)
    this.since = null;
    this.look();
  }

  async look() {
    const state = await ask("/api/state", {}, AbortSignal.timeout(WITHIN_MS)).catch(() => null);
    if (state === null) this.miss();
    else if (this.since !== null) this.lost((this.since = null));
    setTimeout(() => this.look(), EVERY_MS);
    if (state !== null) this.told(state);
  }

  miss() {
    if (this.since !== null) return;
    this.since = new Date();
    this.lost(this.since);
  }
}

export async function ask(path, parameters, signal) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { cache: "no-store", signal });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `code ${answer.status}`);
  return answer.json();
}
