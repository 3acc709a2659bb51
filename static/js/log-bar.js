// The bar above lines of logs: whether long lines are wrapped, which the browser remembers, and the download.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const WRAP = "unstall.wrap";
  const HOUR = 3600000;

  const remembered = () => {
    try {
      return localStorage.getItem(WRAP);
    } catch {
      return null;
    }
  };

  const remember = (word) => {
    try {
      localStorage.setItem(WRAP, word);
    } catch {
      // not remembered, but in force
    }
  };

  // `asked()`: the fields of the question as it stands.
  unstall.bar = (root, list, asked) => {
    const button = root.querySelector("[data-wrap]");
    const link = root.querySelector("[data-download]");

    const wrap = (isOn) => {
      button.setAttribute("aria-pressed", String(isOn));
      root.toggleAttribute("data-wraps", isOn);
      list.follow();
    };
    button.addEventListener("click", () => {
      const isOn = button.getAttribute("aria-pressed") !== "true";
      wrap(isOn);
      remember(isOn ? "on" : "off");
    });
    wrap(remembered() !== "off");

    // Live lines have no end: up to now, from an hour ago.
    const aim = () => {
      const query = asked();
      if (!query.has("to")) query.set("to", Date.now());
      if (!query.has("from")) query.set("from", Number(query.get("to")) - HOUR);
      link.href = `/live/logs/download?${query}`;
    };
    for (const name of ["pointerdown", "focus", "click"]) link.addEventListener(name, aim);
    aim();
  };
})();
