// The palette: opened by a key or from the search box, moved through with the arrows.
(() => {
  "use strict";

  const dialog = document.getElementById("palette");
  const finds = document.querySelector("[data-finds]");
  if (!dialog) return;
  const input = dialog.querySelector("input");
  const list = document.getElementById("palette-hits");

  const options = () => [...list.querySelectorAll("[role=option]")];

  const mark = (chosen) => {
    for (const option of options()) option.setAttribute("aria-selected", String(option === chosen));
    if (chosen) {
      input.setAttribute("aria-activedescendant", chosen.id);
      chosen.scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  };

  const marked = () => options().find((option) => option.getAttribute("aria-selected") === "true");

  const move = (step) => {
    const all = options();
    if (all.length === 0) return;
    const at = all.indexOf(marked());
    mark(all[(at + step + all.length) % all.length]);
  };

  const open = (text = "") => {
    if (dialog.open) return;
    input.value = text;
    dialog.showModal();
    input.focus();
    input.setSelectionRange(text.length, text.length);
    input.dispatchEvent(new CustomEvent("unstall:asked"));
  };

  // What was found for other words than those that stand there now is not what Enter means.
  let isAwaited = false;
  const follow = () => {
    isAwaited = list.dataset.answers !== input.value;
    if (isAwaited) return;
    const link = marked() || options()[0];
    if (link) location.assign(link.href);
  };

  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    }
  });
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    follow();
  });
  list.addEventListener("htmx:afterSwap", (event) => {
    list.dataset.answers = new URL(event.detail.pathInfo.finalRequestPath, location.href).searchParams.get("q") ?? "";
    mark(options()[0]);
    if (isAwaited) follow();
  });
  input.addEventListener("input", () => {
    isAwaited = false;
  });
  document.addEventListener("unstall:palette", () => open());
  if (finds) {
    // A finger or a mouse means the palette; whoever comes by Tab may type here first.
    finds.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      open();
    });
    finds.addEventListener("input", () => {
      open(finds.value);
      finds.value = "";
    });
  }
})();
