// Lines before those on the page, of several sources at once: each page is merged by time, and nothing is shown before
// every source has come as far back.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const LIMIT = 200; // lines of each source at once
  const ROUNDS = 20; // looks of a second each; after so many the reader decides whether to go on

  class Older {
    constructor(list, { said }) {
      Object.assign(this, { list, said, sources: new Map(), query: "", asking: null });
    }

    reset(query) {
      this.asking?.abort();
      Object.assign(this, { sources: new Map(), query, asking: null });
    }

    // Where a source's older lines begin; what is learned first counts, for a stream that goes on tells its own place.
    learn(source, before) {
      if (!this.sources.has(source)) this.sources.set(source, { before, pending: [] });
    }

    // A line has left the page at the top: from now on it is one of the older ones.
    left(item) {
      this.asking?.abort(); // what it brings stands elsewhere by now
      if (!item.kind) this.sources.set(item.source, { before: item.id, pending: [] });
    }

    get isDone() {
      return [...this.sources.values()].every((one) => !one.before && !one.pending.length);
    }

    async more() {
      if (this.asking || this.isDone) return;
      const mine = (this.asking = new AbortController());
      const wasPaused = this.list.paused;
      try {
        const lines = await this.#read(mine.signal);
        // Who has gone on to the end meanwhile is not called back.
        if (!mine.signal.aborted) this.list.prepend(lines, wasPaused && !this.list.paused);
      } catch (trouble) {
        if (!mine.signal.aborted) this.list.prepend([{ kind: "trouble", text: trouble.message, advice: trouble.advice }]);
      }
      if (this.asking === mine) this.asking = null;
      this.said("");
    }

    async #read(signal) {
      for (let round = 0; round < ROUNDS; round += 1) {
        await Promise.all([...this.sources].map(([name, one]) => this.#fill(name, one, signal)));
        const lines = this.#ripe();
        if (lines.length || this.isDone) return lines;
      }
      return [];
    }

    async #fill(name, one, signal) {
      if (one.pending.length || !one.before) return;
      const query = new URLSearchParams(this.query);
      for (const key of ["source", "to"]) query.delete(key);
      for (const [key, value] of Object.entries({ source: name, before: one.before, limit: LIMIT })) query.set(key, value);
      const told = await unstall.asked(`/live/logs/older?${query}`, signal);
      one.before = told.before;
      one.pending = unstall.unpack(told, name);
      if (told.reached && !one.pending.length) this.said(`Searched back to ${unstall.exactly(told.reached).slice(0, 19)}`);
    }

    // Those that no source with more to come could still stand between, oldest first.
    #ripe() {
      const open = [...this.sources.values()].filter((one) => one.before);
      if (open.some((one) => !one.pending.length)) return [];
      const horizon = open.map((one) => one.pending[0].at).reduce((one, other) => (unstall.isLater(one, other) ? one : other), "0");
      const found = [];
      for (const one of this.sources.values()) {
        const start = one.pending.findIndex((item) => !unstall.isLater(horizon, item.at));
        if (start >= 0) found.push(...one.pending.splice(start));
      }
      if (this.sources.size < 2) return found; // a source's own order is kept
      return found.sort((one, other) => Number(unstall.isLater(one.at, other.at)) - Number(unstall.isLater(other.at, one.at)));
    }
  }

  // JSON of ours, or an error with the words and the advice of the server.
  unstall.asked = async (address, signal) => {
    const answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
    const words = await answer.text();
    const told = unstall.parsed(words);
    if (answer.ok && told) return told;
    const text = told?.error || (answer.status < 500 && words.slice(0, 200)) || "The server sent an unexpected response.";
    throw Object.assign(new Error(text), { advice: told?.advice || "" });
  };

  unstall.parsed = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return null; // words
    }
  };

  Object.assign(unstall, { Older });
})();
