// Draws what the server worked out. A colour written `var:failed` becomes the token's value in the theme of the moment.
const AGAIN_AFTER = 30_000; // ms; the newest bucket is a closed minute, so more often shows nothing new
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

async function draw(place) {
  if (!place.figure || Date.now() - place.askedAt > AGAIN_AFTER) {
    place.askedAt = Date.now();
    const answer = await fetch(place.dataset.chart, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    place.figure = await answer.json();
  }
  const { data, layout } = coloured(place.figure);
  await window.Plotly.react(place, local(data), layout, CONFIG);
}

// Plotly draws in UTC: shift to the reader's zone, so that the axis says what the clock on the wall says.
function local(traces) {
  return traces.map((trace) => ({
    ...trace,
    x: trace.x.map((at) => at - new Date(at).getTimezoneOffset() * 60_000),
  }));
}

function all() {
  for (const place of document.querySelectorAll("[data-chart]")) draw(place).catch(() => {});
}

document.body.addEventListener("unstall:refresh", all);
document.body.addEventListener("htmx:load", all);
document.body.addEventListener("htmx:beforeCleanupElement", ({ target }) => {
  if (target.figure) window.Plotly.purge(target); // it listens to the window as long as it lives
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
new MutationObserver(all).observe(document.documentElement, { attributeFilter: ["data-theme"] });
all();
