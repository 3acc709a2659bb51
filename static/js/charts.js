// Draws what the server worked out. A colour written `var:failed` becomes the token's value in the theme of the moment.
const AGAIN_AFTER = 30_000; // ms; where a figure does not say how soon there is something new
const RETRY_AFTER = 2_000; // ms; until the first answer
const SETTLED_AFTER = 400; // ms; plotly moves for less
const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;
const CONFIG = { displayModeBar: false, responsive: true };

function coloured(value) {
  if (typeof value === "string" && value.startsWith("var:")) return resolved(`--${value.slice(4)}`);
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
  }
  return value;
}

// A canvas turns light-dark() and oklch() into the plain colour that plotly understands.
function resolved(name) {
  const probe = document.createElement("i");
  probe.className = "probe";
  document.body.append(probe);
  probe.style.setProperty("color", `var(${name})`);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.fillStyle = getComputedStyle(probe).color;
  probe.remove();
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return `rgba(${red}, ${green}, ${blue}, ${alpha / 255})`;
}

// Asks for what is new, when there may be something; what is drawn already is left alone.
async function draw(place) {
  const wait = place.figure ? Math.min(place.figure.again || AGAIN_AFTER, AGAIN_AFTER) : RETRY_AFTER;
  if (Date.now() - (place.askedAt || 0) < wait) return;
  place.askedAt = Date.now();
  const answer = await fetch(place.dataset.chart, { headers: { Accept: "application/json", "X-Unstall-By-Itself": "1" } });
  if (!answer.ok) return;
  place.figure = await answer.json();
  await paint(place);
}

async function paint(place) {
  if (!place.figure) return;
  const { data, layout } = coloured(place.figure);
  const shown = placed(layout);
  if (place.isZoomed) shown.xaxis = { ...shown.xaxis, range: place.layout.xaxis.range };
  await window.Plotly.react(place, data, shown, CONFIG);
  if (!place.isWatched && shown.xaxis.range) watch(place);
}

// A part of the time that the reader has chosen stays while new points come; a double click goes back to all.
function watch(place) {
  place.isWatched = true;
  place.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) place.isZoomed = true;
  });
  place.on("plotly_doubleclick", () => {
    place.isZoomed = false;
    setTimeout(() => {
      place.isZoomed = false; // plotly has gone back to where it began, which is not where now is
      paint(place).catch(() => {});
    }, SETTLED_AFTER);
  });
}

// What this browser adds to the figure: the zone that its times are drawn in. Plotly turns numbers into local time by
// itself. A finger on a chart scrolls the page, and zooms nothing.
function placed(layout) {
  return {
    ...layout,
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: { ...layout.xaxis, title: { text: `Time zone: ${ZONE}`, font: { size: 11 }, standoff: 4 } },
  };
}

function every(what) {
  for (const place of document.querySelectorAll("[data-chart]")) what(place).catch(() => {});
}

const all = () => every(draw);
const again = () => every(paint); // the theme has other colours

document.body.addEventListener("unstall:refresh", all);
document.body.addEventListener("htmx:load", all);
document.body.addEventListener("htmx:beforeCleanupElement", ({ target }) => {
  if (target.figure) window.Plotly.purge(target); // it listens to the window as long as it lives
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
all();
