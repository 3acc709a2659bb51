// Asks for a page that could not be shown until it can, and only then loads it: nobody is interrupted while reading why.
(() => {
  "use strict";

  const every = Number(document.querySelector("[data-retry]").dataset.retry) * 1000;

  const ask = async () => {
    if (!document.hidden) {
      const answer = await fetch(location.href, { headers: { Accept: "text/html", "X-Unstall-By-Itself": "1" } }).catch(() => null);
      if (answer && answer.status !== 503) {
        location.reload();
        return;
      }
    }
    setTimeout(ask, every);
  };

  setTimeout(ask, every);
})();
