// Copies the text of the element that a button names. Works over plain HTTP too, where the clipboard API is missing.
const SAID_FOR = 1500; // ms

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const done = await copied(source.value ?? source.textContent);
  const words = button.textContent;
  button.textContent = done ? "Copied" : "Could not copy";
  button.disabled = true;
  setTimeout(() => {
    button.textContent = words;
    button.disabled = false;
  }, SAID_FOR);
});

async function copied(text) {
  if (navigator.clipboard && window.isSecureContext) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "hush" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
