// On a narrow screen the pages stand in a bar that scrolls: the one that is open is brought into sight.
(() => {
  "use strict";

  const here = document.querySelector(".pages [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "nearest" });
})();
