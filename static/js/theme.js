// The theme: a cookie that the server reads, so that no page ever flashes in the wrong one.
(() => {
  "use strict";

  const COOKIE = "unstall-theme";
  const YEAR = 31536000;
  const THEMES = ["system", "light", "dark"];
  const root = document.documentElement;

  const cookie = () => (document.cookie.match(new RegExp(`(?:^|; )${COOKIE}=(\\w+)`)) || [])[1];

  const show = (theme) => {
    root.dataset.theme = theme;
    document.querySelectorAll(".themes button").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.value === theme));
    });
    document.body.dispatchEvent(new CustomEvent("unstall:theme", { detail: { theme } })); // charts redraw
  };

  const choose = (theme) => {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `${COOKIE}=${theme}; Path=/; Max-Age=${YEAR}; SameSite=Lax${secure}`;
    show(theme);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest(".themes button");
    if (!button) return;
    event.preventDefault();
    choose(button.value);
  });
  document.addEventListener("unstall:next-theme", () => {
    choose(THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length]);
  });
  // A page out of the back button's memory still wears what it wore.
  window.addEventListener("pageshow", (event) => {
    const theme = cookie();
    if (event.persisted && THEMES.includes(theme)) show(theme);
  });
})();
