// Keeps `<time data-ago data-ts="…">` fresh without asking the server, in the words of the filter `ago`,
// by the server's clock: the reader's own may be wrong.
(() => {
  "use strict";

  const STEPS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  const EVERY_MS = 1000;
  const exact = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
  });
  let ahead = (Number(document.body.dataset.now) || Date.now()) - Date.now();

  const age = (milliseconds) => {
    const past = Math.abs(milliseconds);
    const step = STEPS.find(([size]) => past >= size);
    if (!step) return "now";
    const text = `${Math.floor(past / step[0])} ${step[1]}`;
    return milliseconds > 0 ? `${text} ago` : `in ${text}`;
  };

  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  const freshen = () => {
    const now = Date.now() + ahead;
    for (const element of document.querySelectorAll("time[data-ago]")) {
      write(element, age(now - Number(element.dataset.ts)));
    }
  };

  // The reader's own zone, once for each element.
  const localise = (within) => {
    for (const element of within.querySelectorAll("time[data-ts]:not([data-local])")) {
      const moment = new Date(Number(element.dataset.ts));
      if (Number.isNaN(moment.getTime())) continue;
      element.dataset.local = "";
      if ("exact" in element.dataset) write(element, exact.format(moment));
      else element.title = exact.format(moment);
    }
  };

  document.body.addEventListener("unstall:arrived", (event) => {
    if (event.detail && event.detail.now) ahead = event.detail.now - Date.now();
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    localise(document);
    freshen();
  });
  setInterval(() => document.hidden || freshen(), EVERY_MS);
  localise(document);
  freshen();
})();
