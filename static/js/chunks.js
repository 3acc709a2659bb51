// Refreshes only those chunks of a long table that can be seen, and a chunk that was out of sight when it comes back.
const seen = new WeakSet();
const stale = new WeakSet();
const eyes = new IntersectionObserver(look, { rootMargin: "120px" });

function look(entries) {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
    if (isIntersecting && stale.delete(target)) ask(target);
  }
}

function ask(chunk) {
  chunk.dispatchEvent(new CustomEvent("unstall:refresh")); // does not bubble: it is for this chunk alone
}

function watch(root) {
  for (const chunk of root.querySelectorAll("[data-chunk]")) eyes.observe(chunk);
}

document.body.addEventListener("unstall:refresh", () => {
  for (const chunk of document.querySelectorAll("[data-chunk]")) {
    if (seen.has(chunk)) ask(chunk);
    else stale.add(chunk);
  }
});
document.body.addEventListener("htmx:load", () => watch(document));
watch(document);
