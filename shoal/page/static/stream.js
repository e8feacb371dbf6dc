// What the page is told: everything once, then what changes. One connection, made again by itself.
//
//   all   {peers: […]}               everything
//   peer  {name, blocks: {…}}        what is new of one peer
//   rounds {name, rows}              its curves have grown
const SILENT_MS = 40_000; // the stream says something every 15 s
const AGAIN_MS = 3_000;

export class Stream {
  constructor(told, lost) {
    this.told = told; // (kind, value)
    this.lost = lost; // (since: Date | null)
    this.since = null;
    this.open();
    setInterval(() => this.watch(), 5_000);
  }

  open() {
    this.source?.close();
    this.source = new EventSource("/api/events");
    this.heard();
    for (const kind of ["all", "peer", "rounds"]) {
      this.source.addEventListener(kind, (event) => {
        this.heard();
        this.found();
        this.told(kind, JSON.parse(event.data));
      });
    }
    this.source.onopen = () => {
      this.heard();
      this.found();
    };
    this.source.onerror = () => {
      this.miss();
      // A browser gives up on an answer that is no stream, as when as many look as may.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.open(), AGAIN_MS);
    };
  }

  heard() {
    this.last = Date.now();
  }

  found() {
    if (this.since === null) return;
    this.since = null;
    this.lost(null);
  }

  miss() {
    if (this.since !== null) return;
    this.since = new Date();
    this.lost(this.since);
  }

  watch() {
    if (Date.now() - this.last > SILENT_MS) {
      this.miss();
      this.open();
    }
  }
}

export async function ask(path, parameters) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `code ${answer.status}`);
  return answer.json();
}
