// Opens dialogs (`data-opens="id"`), closes them by a click beside them; and the small acts of plain elements:
// a select that sends its form, a button that dismisses.
(() => {
  "use strict";

  const open = (id) => {
    const dialog = document.getElementById(id);
    if (dialog && !dialog.open) dialog.showModal();
  };

  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.tagName === "DIALOG" && target.open) {
      const box = target.getBoundingClientRect();
      const inside = event.clientX >= box.left && event.clientX <= box.right
        && event.clientY >= box.top && event.clientY <= box.bottom;
      if (!inside) target.close();
      return;
    }
    const button = target.closest("[data-opens], [data-dismisses]");
    if (!button) return;
    if ("opens" in button.dataset) open(button.dataset.opens);
    else button.closest(".notice").remove();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
  });
  document.addEventListener("unstall:open", (event) => open(event.detail.id));
})();
