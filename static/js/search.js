// Stops a search that asks for its next slice by itself; "Go on" beside the button starts it again.
// It acts when it is pressed, not when it is let go: by then the next slice may have put another button in its place.
const stop = (event) => {
  const button = event.target.closest("[data-stop]");
  if (!button || event.button) return; // the first button of a mouse, or a key
  const asking = document.getElementById(button.dataset.stop);
  window.htmx.trigger(asking, "htmx:abort");
  const stopped = asking.cloneNode(true); // without the listeners and timers of the one that was asking
  for (const name of ["hx-get", "hx-trigger", "hx-swap"]) stopped.removeAttribute(name);
  stopped.querySelector("[data-stop]").replaceWith("Stopped. ");
  asking.replaceWith(stopped);
  stopped.querySelector("a").focus();
  event.preventDefault(); // or the press would take the focus away again
};
document.addEventListener("mousedown", stop);
document.addEventListener("click", stop); // of a key, or of a finger
