// The lines on a page: at most so many, never under the reader's eyes while they read, and drawn for half of the time
// at most. What is left out of the page is not lost: it is among the older lines, which come when they are looked for.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const MOST = 3000; // lines on the page; the oldest leave
  const HELD = 5000; // lines that wait for the reader to come back
  const BEHIND = 2000; // lines that wait to be drawn; with more of them only the newest are shown, as many as
  const KEPT = 500;
  const PER_FRAME = 200;
  const NEAR = 24; // pixels from the end that count as the end

  // `told()`: something has changed that is said beside the lines. `left(item)`: a line left at the top.
  class Lines {
    constructor(box, rows, { told, left }) {
      Object.assign(this, { box, rows, told, left, marks: [], queue: [], held: [] });
      this.clear();
      box.addEventListener("scroll", () => this.#scrolled());
      box.addEventListener("wheel", (event) => event.deltaY < 0 && this.#lookBack(), { passive: true });
      box.addEventListener("keydown", (event) => {
        if (["ArrowUp", "PageUp", "Home"].includes(event.key) && event.target === box) this.#lookBack();
      });
      new ResizeObserver(() => this.follow()).observe(box);
    }

    clear() {
      Object.assign(this, { queue: [], held: [], gone: new Map(), skipped: 0, paused: false, cut: false, origins: new unstall.Origins() });
      this.rows.replaceChildren();
    }

    add(items) {
      (this.paused ? this.held : this.queue).push(...items);
      for (const item of this.held.splice(0, Math.max(0, this.held.length - HELD))) {
        if (!item.kind) this.gone.set(item.source, item);
        this.skipped += 1;
      }
      if (this.paused) this.told();
      else this.#soon();
    }

    pause() {
      if (this.paused) return;
      Object.assign(this, { paused: true, held: [...this.queue, ...this.held], queue: [] });
      this.told();
    }

    // False: too much has left the page; whoever asks must read anew.
    resume() {
      if (this.cut) return false;
      Object.assign(this, { paused: false, queue: this.held, held: [], skipped: 0 });
      this.#soon();
      this.follow();
      this.told();
      return true;
    }

    get waiting() {
      return this.held.length + this.skipped;
    }

    // Older lines, oldest first. What the reader looks at stays where it is. `isBack`: they are at the end again.
    prepend(items, isBack = false) {
      if (!isBack) this.pause();
      const anchor = this.rows.firstElementChild;
      const before = anchor?.getBoundingClientRect().top;
      this.rows.prepend(...items.map((item) => this.#element(item)));
      if (anchor) this.box.scrollTop += anchor.getBoundingClientRect().top - before;
      if (isBack) this.#shorten();
      for (let over = this.rows.childElementCount - MOST; over > 0; over -= 1) {
        this.rows.lastElementChild.remove();
        this.cut = true;
      }
      this.origins.fit(this.rows);
      unstall.mark(this.rows, this.marks);
      this.follow();
    }

    #shorten() {
      for (let over = this.rows.childElementCount - MOST; over > 0; over -= 1) {
        const row = this.rows.firstElementChild;
        if (row.item) this.left(row.item);
        row.remove();
      }
    }

    #soon() {
      this.frame ??= setTimeout(() => requestAnimationFrame(() => this.#draw()), this.took);
    }

    // All that stands on the page leaves first, for it is older than what waits.
    #skip() {
      for (const row of this.rows.children) if (row.item) this.left(row.item);
      this.rows.replaceChildren();
      for (const item of this.gone.values()) this.left(item);
      for (const item of this.queue.splice(0, Math.max(0, this.queue.length - KEPT))) this.left(item);
      this.gone.clear();
    }

    #draw() {
      this.frame = null;
      if (this.paused) return;
      const begun = performance.now();
      if (this.gone.size || this.queue.length > BEHIND) this.#skip();
      for (const item of this.queue.splice(0, PER_FRAME)) unstall.place(this.rows, this.#element(item), item);
      this.#shorten();
      unstall.mark(this.rows, this.marks);
      this.origins.fit(this.rows);
      this.told();
      this.follow();
      this.took = performance.now() - begun;
      if (this.queue.length) this.#soon();
    }

    #element(item) {
      if (item.kind) return unstall.note(item);
      if (this.origins.see(item.labels)) {
        for (const row of this.rows.querySelectorAll(".log-line")) row.children[2].textContent = this.origins.of(row.item.labels);
      }
      return unstall.line(item, this.origins);
    }

    follow() {
      if (this.paused) return;
      this.box.scrollTop = this.box.scrollHeight;
      this.top = this.box.scrollTop;
    }

    #lookBack() {
      if (this.box.scrollHeight > this.box.clientHeight) this.pause();
    }

    #scrolled() {
      const isAtEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < NEAR;
      if (!isAtEnd) {
        if (this.box.scrollTop < this.top) this.pause(); // else it grew, and nobody scrolled
      } else if (this.paused && !this.still && !this.cut && this.wasBack) this.resume();
      this.wasBack = !isAtEnd;
    }
  }

  Object.assign(unstall, { Lines });
})();
