// Rows of tables by keyboard and in ranges: j and k move, Enter opens, x selects, shift-click selects a range.
(() => {
  "use strict";

  const body = document.body;
  let anchor = null; // the checkbox that the last click was on
  let place = -1; // the cursor's row
  let kept = ""; // the id of that row's link: after a swap the row may stand elsewhere

  const rows = () => [...document.querySelectorAll("main [data-row]")];
  const boxes = () => [...document.querySelectorAll("[data-select]:not(:disabled)")];

  const tell = () => {
    const count = document.querySelectorAll("[data-select]:checked").length;
    const all = document.querySelector("[data-select-all]");
    if (all) {
      all.checked = count > 0 && count === boxes().length;
      all.indeterminate = count > 0 && !all.checked;
    }
    body.dispatchEvent(new CustomEvent("unstall:selection", { detail: { count } }));
  };

  const cursor = (index) => {
    const all = rows();
    for (const row of all) delete row.dataset.cursor;
    place = Math.max(-1, Math.min(index, all.length - 1));
    kept = "";
    const row = all[place];
    if (!row) return;
    row.dataset.cursor = "";
    row.scrollIntoView({ block: "nearest" });
    const link = row.querySelector("a");
    kept = link ? link.id : "";
    if (link) link.focus({ preventScroll: true }); // Enter opens it, and a screen reader says it
  };

  const select = () => {
    const row = rows()[place];
    const box = row && row.querySelector("[data-select]");
    if (!box) return;
    box.checked = !box.checked;
    anchor = box;
    tell();
  };

  const letGo = () => {
    for (const box of boxes()) box.checked = false;
    cursor(-1);
    tell();
  };

  document.addEventListener("click", (event) => {
    const box = event.target.closest("[data-select]");
    if (!box) return;
    const all = boxes();
    const from = all.indexOf(anchor);
    if (event.shiftKey && from >= 0) {
      const to = all.indexOf(box);
      for (const between of all.slice(Math.min(from, to), Math.max(from, to) + 1)) between.checked = box.checked;
    }
    anchor = box;
    tell();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-select-all]")) return;
    for (const box of boxes()) box.checked = event.target.checked;
    tell();
  });
  document.addEventListener("unstall:row", (event) => cursor(place + event.detail.step));
  document.addEventListener("unstall:open-row", () => rows()[place]?.querySelector("a")?.click());
  document.addEventListener("unstall:select", select);
  document.addEventListener("unstall:let-go", letGo);
  body.addEventListener("htmx:afterSwap", () => {
    const link = kept && document.getElementById(kept);
    const row = kept ? link && link.closest("[data-row]") : rows()[place];
    place = row ? rows().indexOf(row) : -1;
    if (row) row.dataset.cursor = ""; // without the focus: the reader may be elsewhere by now
    tell();
  });
})();
