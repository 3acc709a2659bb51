// How old the numbers on this page are, in the bar: live, paused, or stale with the reason.
// Also tells the banner (`unstall:trouble`) when what is wrong with the house has changed.
(() => {
  "use strict";

  const EVERY_MS = 1000;
  const body = document.body;
  const fresh = document.getElementById("fresh");
  const said = document.getElementById("fresh-said");
  const banner = document.getElementById("banner");
  if (!fresh) return;

  const word = fresh.querySelector(".word");
  const age = fresh.querySelector(".age");
  let ahead = (Number(body.dataset.now) || Date.now()) - Date.now();
  let taken = Number(fresh.dataset.takenAt) || null; // when the numbers on the page were taken
  let stale = fresh.dataset.tone === "stale";
  let reason = fresh.title;
  let cut = ""; // why the stream does not flow
  let held = "";
  let known = banner && banner.childElementCount === 0 ? JSON.stringify(["", []]) : "";

  const duration = (milliseconds) => {
    const seconds = Math.max(0, milliseconds) / 1000;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 120) return `${Math.floor(seconds)} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return `${Math.floor(seconds / 3600)} h`;
  };

  const show = () => {
    const past = taken === null ? "no data yet" : duration(Date.now() + ahead - taken);
    const tone = stale || cut ? "stale" : held ? "paused" : "live";
    if (fresh.dataset.tone !== tone) {
      fresh.dataset.tone = tone;
      said.textContent = tone === "stale" ? `The data is stale. ${cut || reason}` : `Updates: ${tone}.`;
    }
    word.textContent = `${tone} ·`;
    age.textContent = taken === null || tone === "stale" ? past : `${past} ago`;
    fresh.title = tone === "paused" ? `Paused: ${held}` : cut || reason;
  };

  const compare = (detail) => {
    const now = JSON.stringify([detail.reason, detail.problems]);
    if (now !== known) body.dispatchEvent(new CustomEvent("unstall:trouble"));
    known = now;
  };

  body.addEventListener("unstall:arrived", (event) => {
    const detail = event.detail;
    ahead = detail.now - Date.now();
    stale = detail.stale;
    reason = detail.reason || "";
    compare(detail);
    show();
  });
  body.addEventListener("unstall:refresh", (event) => {
    if (event.detail && event.detail.taken_at) taken = event.detail.taken_at;
    show();
  });
  body.addEventListener("unstall:stalled", (event) => {
    cut = event.detail.reason;
    show();
  });
  body.addEventListener("unstall:flowing", () => {
    cut = "";
    show();
  });
  body.addEventListener("unstall:held", (event) => {
    held = event.detail.why;
    show();
  });
  setInterval(() => document.hidden || show(), EVERY_MS);
})();
