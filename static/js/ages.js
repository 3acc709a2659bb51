// Keeps `<time data-ago data-ts="…">` fresh without asking the server, in the words of the filter `ago`,
// by the server's clock: the reader's own may be wrong.
(() => {
  "use strict";

  const STEPS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  const EVERY_MS = 1000;
  const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  let ahead = (Number(document.body.dataset.now) || Date.now()) - Date.now();

  const age = (milliseconds) => {
    const past = Math.abs(milliseconds);
    const step = STEPS.find(([size]) => past >= size);
    if (!step) return "now";
    const text = `${Math.floor(past / step[0])} ${step[1]}`;
    return milliseconds > 0 ? `${text} ago` : `in ${text}`;
  };

  const two = (number) => String(number).padStart(2, "0");

  // The same digits in every language of browser, as in logs: 2026-11-18 13:00:59 CET.
  const exact = (moment) => {
    const date = [moment.getFullYear(), two(moment.getMonth() + 1), two(moment.getDate())].join("-");
    const time = [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(two).join(":");
    const name = zone.formatToParts(moment).find((part) => part.type === "timeZoneName");
    return `${date} ${time} ${name.value}`;
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
      if ("exact" in element.dataset) write(element, exact(moment));
      else element.title = exact(moment);
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
