// The dialog that asks before anything is changed. Links bring its content by htmx; without scripts they are pages.
(() => {
  "use strict";

  const dialog = document.getElementById("act");
  if (!dialog) return;
  const body = document.body;

  const close = () => dialog.open && dialog.close();

  const anew = () => {
    for (const box of document.querySelectorAll("[data-select]:checked")) box.checked = false;
    body.dispatchEvent(new CustomEvent("unstall:selection", { detail: { count: 0 } }));
    for (const name of ["unstall:refresh", "unstall:changed"]) body.dispatchEvent(new CustomEvent(name));
  };

  // An answer was made from what was sent; the reason may have been written while it was under way.
  let reason = "";
  const reasonField = () => dialog.querySelector("[name=reason]");
  body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target === dialog) reason = reasonField()?.value || "";
  });

  // The content is there: show it. A refresh in between may have swapped the link away; the dialog does not mind.
  body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "trouble") close(); // what went wrong stands on the page behind it
    if (event.detail.target !== dialog) return;
    if (reason && reasonField()) reasonField().value = reason;
    if (!dialog.open && dialog.childElementCount) dialog.showModal();
    const wrong = dialog.querySelector("[aria-invalid]");
    const first = dialog.querySelector("[data-first]");
    const field = wrong || first || dialog.querySelector("textarea, footer [data-kind]");
    if (field && !dialog.contains(document.activeElement.closest("fieldset, .field"))) field.focus();
  });

  // It was done and there is nothing to read: a toast says so, and the page shows what is now.
  body.addEventListener("unstall:acted", () => {
    close();
    anew();
  });

  body.addEventListener("unstall:selection", (event) => {
    for (const words of document.querySelectorAll("[data-selected]")) {
      words.textContent = `${event.detail.count.toLocaleString("en")} selected`;
    }
  });

  dialog.addEventListener("close", () => {
    const acted = dialog.querySelector("[data-acted]");
    dialog.replaceChildren();
    if (acted) anew();
  });
  document.addEventListener("click", (event) => {
    const closing = event.target.closest("#act [data-closes]");
    if (closing) {
      event.preventDefault();
      close();
      return;
    }
    // A menu closes when something else is clicked, and when one of its lines was.
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target) || event.target.closest("a")) menu.open = false;
    }
  });
  // Another option is another order: what it does is asked before it can be confirmed.
  document.addEventListener("change", (event) => {
    const look = event.target.matches("[data-looks]") && event.target.form.querySelector("button[value=look]");
    if (look) look.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
})();
