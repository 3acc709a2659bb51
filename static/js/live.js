// One event stream for this page. Each snapshot becomes `unstall:arrived` on the body, and, unless somebody
// cancels that (a chosen refresh rate, a selection, an open dialog), `unstall:tick`, which the fragments follow.
// What is wrong with the stream itself becomes `unstall:stalled` with a reason, `unstall:flowing` when it is well.
// A page with `data-stream` in it says by `unstall:stream` what it reads besides, as often as it likes: its lines come
// as `unstall:lines`, `unstall:note`, … over the same stream, and none of an earlier wish after a later one.
(() => {
  "use strict";

  const EVENTS = "/live/events";
  const KINDS = ["tick", "lines", "note", "older", "end"];
  const HIDDEN_MS = 5000; // a quick look at another tab costs no reconnect
  const FIRST_WORD_MS = 3000; // the server speaks at once; silence means that something holds its words back
  const SILENCE_MS = 20000; // the server ticks every 2 s, even when it has nothing newer
  const SPREAD_MS = 400; // the tabs of one office do not ask for their rows in the same instant
  const FIRST_PAUSE_MS = 1000;
  const LONGEST_PAUSE_MS = 60000;

  const REASONS = {
    buffered: "Live updates are delayed: a proxy buffers the stream.",
    lost: "Live updates stopped: the server cannot be reached.",
    refused: "Live updates are refused: too many live pages are open, or you are logged out.",
    "logged-out": "You are logged out. Log in again to continue.",
  };
  const TAB = crypto.getRandomValues(new Uint32Array(3)).join("-");

  let source = null;
  let [firstWord, reconnect, hiding] = [0, 0, 0]; // timers
  let pause = FIRST_PAUSE_MS;
  let heardAt = 0;
  let stalled = "";
  let next = null; // what the tick under way will tell
  let wish = document.querySelector("[data-stream]") ? null : { path: EVENTS };
  let generation = 0;
  let last = ""; // how far the lines have come

  const tell = (name, detail) =>
    document.body.dispatchEvent(new CustomEvent(`unstall:${name}`, { detail, cancelable: true }));

  const stall = (kind) => {
    if (stalled === kind) return;
    stalled = kind;
    tell("stalled", { kind, reason: REASONS[kind] });
  };

  const flows = () => {
    heardAt = Date.now();
    clearTimeout(firstWord);
    pause = FIRST_PAUSE_MS;
    if (!stalled) return;
    stalled = "";
    tell("flowing", {});
  };

  const close = () => {
    for (const timer of [firstWord, reconnect]) clearTimeout(timer);
    if (source) source.close();
    source = null;
  };

  // Full jitter: a hundred tabs that lost the same server do not come back together.
  const later = (least = 0) => {
    close();
    reconnect = setTimeout(open, least + Math.random() * pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  };

  // One tick is under way at a time, and it tells the newest: two of them could overtake each other.
  const arrive = (detail) => {
    if (!tell("arrived", detail)) return;
    if (!next) setTimeout(tick, Math.random() * SPREAD_MS);
    next = detail;
  };

  const tick = () => {
    const detail = next;
    next = null;
    tell("tick", detail);
  };

  const parsed = (event) => {
    try {
      return JSON.parse(event.data);
    } catch {
      return null; // cut off on the way; the next one is whole
    }
  };

  const address = () => {
    if (wish.path === EVENTS) return EVENTS;
    generation += 1;
    const mine = new URLSearchParams({ g: generation, tab: TAB, ...(last && { last }) });
    return `${wish.path}?${mine}&${wish.query}`;
  };

  const hear = (kind, event) => {
    const detail = parsed(event);
    flows();
    if (detail && wish.path !== EVENTS) last = event.lastEventId;
    if (detail && kind === "tick") arrive(detail);
    else if (detail && detail.g === generation) tell(kind, detail);
  };

  function open() {
    close();
    if (document.hidden || !wish) return;
    source = new EventSource(address());
    heardAt = Date.now();
    firstWord = setTimeout(() => stall("buffered"), FIRST_WORD_MS);
    source.addEventListener("hello", flows);
    for (const kind of KINDS) source.addEventListener(kind, (event) => hear(kind, event));
    source.addEventListener("bye", (event) => {
      const farewell = parsed(event) || {};
      close();
      if (farewell.reason === "logged-out") stall("logged-out");
      else later(Number(farewell.retry) || 0);
    });
    source.addEventListener("error", () => {
      // The browser gives up on an answer that is no stream, and says nothing of it but this state.
      stall(source && source.readyState === EventSource.CLOSED ? "refused" : "lost");
      later();
    });
  }

  document.body.addEventListener("unstall:stream", (event) => {
    wish = event.detail;
    last = "";
    if (stalled !== "logged-out") open();
  });

  // A connection can die without a word (sleep, a changed network); the clock notices.
  setInterval(() => {
    if (source && Date.now() - heardAt > SILENCE_MS) {
      stall("lost");
      later();
    }
  }, SILENCE_MS / 4);

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
    else if (!source && stalled !== "logged-out") open();
  });
  // A page kept for the back button must hold no connection: browsers have six for a host.
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && open());

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", open);
  else open();
})();
