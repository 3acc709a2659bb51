// Short messages in the corner: `unstall:toast` with {text, tone}, as a DOM event or in a fragment's HX-Trigger.
(() => {
  "use strict";

  const STAY_MS = 8000;
  const MOST = 4;
  const place = document.getElementById("toasts");
  const pattern = document.getElementById("toast");

  const leave = (toast) => setTimeout(() => {
    if (toast.matches(":hover, :focus-within")) leave(toast); // somebody is reading it
    else toast.remove();
  }, STAY_MS);

  const show = (text, tone = "note") => {
    const toast = pattern.content.firstElementChild.cloneNode(true);
    toast.dataset.tone = tone;
    toast.querySelector("[data-text]").textContent = text;
    place.append(toast);
    while (place.childElementCount > MOST) place.firstElementChild.remove();
    if (tone !== "bad") leave(toast);
  };

  document.body.addEventListener("unstall:toast", (event) => show(event.detail.text, event.detail.tone));
  // What a person asked for and did not get; a refresh that failed is the freshness indicator's business.
  document.body.addEventListener("htmx:sendError", (event) => {
    const cause = event.detail.requestConfig && event.detail.requestConfig.triggeringEvent;
    if (cause && cause.type === "unstall:refresh") return;
    show("Unstall cannot be reached. Nothing was changed. Try again.", "bad");
  });
  [...place.children].forEach(leave);
})();
