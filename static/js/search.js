// Stops a search that asks for its next slice by itself; "Go on" beside the button starts it again.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-stop]");
  if (!button) return;
  const asking = document.getElementById(button.dataset.stop);
  window.htmx.trigger(asking, "htmx:abort");
  const stopped = asking.cloneNode(true); // without the listeners and timers of the one that was asking
  for (const name of ["hx-get", "hx-trigger", "hx-swap"]) stopped.removeAttribute(name);
  stopped.querySelector("[data-stop]").replaceWith("Stopped. ");
  asking.replaceWith(stopped);
  stopped.querySelector("a").focus();
});
