// The gatekeeper of live fragments. It hears `unstall:tick` and decides when to say `unstall:refresh`:
// at the reader's rate; never while the tab is hidden, rows are selected or a dialog is open; never while the last
// round is under way; less and less often while the server answers with errors.
(() => {
  "use strict";

  const KEY = "unstall.rate";
  const CHECK_MS = 500;
  const SILENT_MS = 10000; // no stream for so long: ask by the clock
  const FALLBACK_MS = 5000;
  const LOST_MS = 30000; // an answer or a button's release that never came must not stop the page for ever
  const LONGEST_MS = 60000;
  const body = document.body;
  const select = document.getElementById("rate");
  const RATES = select ? [...select.options].map((option) => option.value) : ["live"];

  let rate = remembered();
  let news = null; // the newest tick
  let shown = ""; // what the page was last refreshed for
  let heardAt = Date.now();
  let firedAt = Date.now();
  let failures = 0;
  let blockedUntil = 0;
  let told = "";
  let pressedAt = 0;
  const underWay = new Map(); // request → since when

  function remembered() {
    try {
      const kept = localStorage.getItem(KEY);
      return RATES.includes(kept) ? kept : "live";
    } catch {
      return "live"; // a browser without memory
    }
  }

  const choose = (wanted) => {
    rate = wanted;
    if (select) select.value = wanted;
    try {
      localStorage.setItem(KEY, wanted);
    } catch {
      // not remembered, but in force
    }
    consider();
  };

  const held = () => {
    if (rate === "off") return "off";
    if (document.hidden) return "hidden";
    return inHand();
  };

  // What the reader is at would be swapped away.
  const inHand = () => {
    if (document.querySelector("dialog[open]")) return "a dialog is open";
    if (document.querySelector("[data-select]:checked")) return "rows are selected";
    if (document.querySelector("details.menu[open]")) return "a menu is open";
    return "";
  };

  const busy = (now) => {
    for (const [request, since] of underWay) if (now - since > LOST_MS) underWay.delete(request);
    return underWay.size > 0;
  };

  // A click whose target is swapped away before the button is up goes nowhere, however long it is held.
  const pressing = () => Date.now() - pressedAt < LOST_MS;

  const due = (now) => {
    if (rate !== "live") return now - firedAt >= Number(rate) * 1000;
    if (now - heardAt > SILENT_MS) return now - firedAt >= FALLBACK_MS;
    return news !== null && JSON.stringify([news.number, news.stale, news.reason, news.problems]) !== shown;
  };

  function consider() {
    const now = Date.now();
    const why = held();
    if (why !== told) {
      told = why;
      body.dispatchEvent(new CustomEvent("unstall:held", { detail: { why } }));
    }
    if (why || busy(now) || pressing() || now < blockedUntil || !due(now)) return;
    firedAt = now;
    if (news) shown = JSON.stringify([news.number, news.stale, news.reason, news.problems]);
    body.dispatchEvent(new CustomEvent("unstall:refresh", { detail: news }));
  }

  // Whatever no person began is no use of the session: it may end although the page refreshes itself.
  body.addEventListener("htmx:configRequest", (event) => {
    const cause = event.detail.triggeringEvent;
    if (!cause || !cause.isTrusted) event.detail.headers["X-Unstall-By-Itself"] = "1";
  });

  const ours = (event) => {
    const cause = event.detail.requestConfig && event.detail.requestConfig.triggeringEvent;
    return cause && cause.type === "unstall:refresh";
  };

  body.addEventListener("htmx:beforeSend", (event) => {
    if (ours(event)) underWay.set(event.detail.xhr, Date.now());
  });
  body.addEventListener("htmx:beforeSwap", (event) => {
    // The next snapshot brings newer numbers anyway.
    if (ours(event) && (pressing() || inHand())) event.detail.shouldSwap = false;
  });
  body.addEventListener("htmx:afterRequest", (event) => {
    if (!underWay.delete(event.detail.xhr)) return;
    if (event.detail.successful) {
      failures = 0;
      blockedUntil = 0;
      const trouble = document.getElementById("trouble");
      if (trouble && underWay.size === 0) trouble.replaceChildren();
      return;
    }
    failures += 1;
    blockedUntil = Date.now() + Math.min(1000 * 2 ** failures, LONGEST_MS) * (0.75 + Math.random() / 2);
  });
  body.addEventListener("unstall:tick", (event) => {
    news = event.detail;
    heardAt = Date.now();
    consider();
  });
  document.addEventListener("visibilitychange", consider);
  document.addEventListener("pointerdown", () => (pressedAt = Date.now()));
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => (pressedAt = 0));
  // Released where this page does not hear of it: over a context menu, or another window.
  document.addEventListener("pointermove", (event) => event.buttons || (pressedAt = 0));
  document.addEventListener("unstall:next-rate", () => choose(RATES[(RATES.indexOf(rate) + 1) % RATES.length]));
  if (select) {
    select.value = rate;
    select.addEventListener("change", () => choose(select.value));
  }
  setInterval(consider, CHECK_MS);
})();
