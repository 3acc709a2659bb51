// The keyboard. Keys become events; what they mean is known where it is done. No single key changes a queue.
(() => {
  "use strict";

  const SECOND_KEY_MS = 1200; // for pairs such as `g q`
  let first = "";
  let forget = 0;

  const tell = (name, detail = {}) => document.dispatchEvent(new CustomEvent(`unstall:${name}`, { detail }));

  const MEANINGS = {
    "/": () => tell("palette"),
    "?": () => tell("open", { id: "help" }),
    j: () => tell("row", { step: 1 }),
    k: () => tell("row", { step: -1 }),
    x: () => tell("select"),
    r: () => tell("next-rate"),
    t: () => tell("next-theme"),
    Escape: () => tell("let-go"),
  };

  const writing = (element) => element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName)
    && !["checkbox", "radio", "button"].includes(element.type);

  const pair = (key) => {
    const link = document.querySelector(`[data-keys="${CSS.escape(`${first} ${key}`)}"]`);
    first = "";
    if (link) location.assign(link.href);
    return Boolean(link);
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      tell("palette");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (writing(event.target) || document.querySelector("dialog[open]")) return;
    if (first && pair(event.key)) return;
    if (event.key === "g") {
      first = "g";
      clearTimeout(forget);
      forget = setTimeout(() => (first = ""), SECOND_KEY_MS);
      return;
    }
    // On a link the browser acts by itself; but a row that was just put in place anew has not got the focus back yet.
    if (event.key === "Enter" && document.activeElement === document.body) tell("open-row");
    const meaning = MEANINGS[event.key];
    if (!meaning) return;
    event.preventDefault();
    meaning();
  });
})();
