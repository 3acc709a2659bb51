// Live logs on a page: what is asked for, the lines that come, and what is said beside them.
(() => {
  "use strict";

  const root = document.querySelector("[data-logs]");
  if (!root) return;
  const unstall = window.unstall;
  const parts = new Map(); // to look for them among thousands of lines takes longer than all else
  const part = (name) => parts.get(name) ?? parts.set(name, root.querySelector(`[data-${name}]`)).get(name);
  const body = document.body;
  const form = document.getElementById("log-filter");
  const MENUS_MS = 15000; // labels that are new are asked for at most so often
  const state = { is: "", reason: "", searching: "", sources: [], behind: 0, open: 0, troubles: new Map(), sets: new Set(), menus: 0 };

  const list = new unstall.Lines(part("box"), part("rows"), { told: () => show(), left: (item) => older.left(item) });
  const older = new unstall.Older(list, { said: (text) => ((part("reached").textContent = text), show()) });
  const filter = form && new unstall.Filter(form, start);

  for (const mark of root.querySelectorAll("[data-mark]")) {
    const row = unstall.note({ kind: "dropped", text: mark.textContent });
    row.classList.add("log-mark");
    list.marks.push({ at: `${mark.dataset.mark}000000`, row });
  }

  const words = () => {
    if (state.reason) return state.reason;
    if (state.troubles.size) return [...state.troubles].map(([source, text]) => `${called(source)}: ${text}`).join(" ");
    if (list.still) return "Surrounding lines";
    if (list.paused) return "Paused";
    return { "": "Reading…", searching: state.searching, live: "Live", ended: "End of the time range" }[state.is];
  };

  const called = (source) => filter?.called(source) ?? source;
  const write = (element, text) => element.textContent === text || (element.textContent = text);

  function show() {
    const now = list.paused ? "paused" : state.is;
    root.dataset.state = state.reason || state.troubles.size ? "stalled" : now;
    write(part("state"), words());
    const waiting = list.waiting;
    part("resume").hidden = !list.paused || list.still;
    write(part("resume"), waiting ? `${waiting.toLocaleString("en")} new · Resume` : "Resume");
    part("older").hidden = older.isDone;
    part("older").disabled = Boolean(older.asking);
    part("none").hidden = !["live", "ended"].includes(state.is) || Boolean(list.rows.childElementCount) || Boolean(list.queue.length);
  }

  const query = () => String(filter ? filter.query(Date.now()) : root.dataset.query);
  const dated = () => new URLSearchParams(query());

  function start() {
    const asked = query();
    const sources = new URLSearchParams(asked).getAll("source");
    list.clear();
    list.still = false;
    older.reset(asked);
    clearTimeout(state.menus);
    Object.assign(state, { is: "", searching: "", sources, behind: sources.length, open: sources.length, troubles: new Map(), sets: new Set(), menus: 0 });
    part("reached").textContent = "";
    part("go-live")?.remove();
    body.dispatchEvent(new CustomEvent("unstall:stream", { detail: { path: "/live/logs", query: asked } }));
    labels();
    show();
  }

  function labels() {
    const place = document.getElementById("log-labels");
    if (place) unstall.offer(place, state.sources, Object.fromEntries(dated()), () => filter.labels);
  }

  // Lines have labels that none had before: the menus offer those too, a while later.
  const learn = (sets) => {
    const known = state.sets.size;
    for (const set of sets) state.sets.add(JSON.stringify(set));
    if (state.is !== "live" || state.sets.size === known || state.menus) return;
    state.menus = setTimeout(() => {
      state.menus = 0;
      labels();
    }, MENUS_MS);
  };

  const caughtUp = () => {
    state.behind -= 1;
    if (state.behind <= 0 && state.is !== "ended") state.is = "live";
  };

  // What is said of a source: its trouble stands in the bar too, until it is over.
  const note = (told) => {
    const { kind, source, text } = told;
    if (kind === "trouble") state.troubles.set(source, text);
    else if (kind !== "dropped") state.troubles.delete(source);
    if (kind === "caught-up") caughtUp();
    else if (kind === "searching") Object.assign(state, { is: "searching", searching: text });
    else list.add([{ ...told, at: "", of: state.sources.length > 1 ? called(source) : "" }]);
    if (kind === "recovered") labels();
  };

  // Why a stream is refused no browser tells; whoever asks without one hears it.
  const ask = async () => {
    const asking = new AbortController();
    const answer = await fetch(`/live/logs?${query()}`, { signal: asking.signal }).catch(() => null);
    if (answer?.status === 400 && state.reason) state.reason = await answer.text();
    asking.abort();
    show();
  };

  body.addEventListener("unstall:lines", (event) => {
    learn(event.detail.sets);
    list.add(unstall.unpack(event.detail));
  });
  body.addEventListener("unstall:older", (event) => {
    older.learn(event.detail.source, event.detail.before);
    show();
  });
  body.addEventListener("unstall:note", (event) => {
    note(event.detail);
    show();
  });
  body.addEventListener("unstall:end", () => {
    state.open -= 1;
    if (state.open <= 0) state.is = "ended";
    show();
  });
  for (const name of ["stalled", "flowing"]) {
    body.addEventListener(`unstall:${name}`, (event) => {
      state.reason = event.detail.reason || "";
      show();
      if (event.detail.kind === "refused") ask();
    });
  }
  document.addEventListener("unstall:row", (event) => unstall.step(list, event.detail.step));

  part("resume").addEventListener("click", () => list.resume() || start());
  part("older").addEventListener("click", () => (older.more(), show()));
  new IntersectionObserver(([entry]) => entry.isIntersecting && list.paused && (older.more(), show()), { root: list.box }).observe(part("older"));
  root.addEventListener("click", (event) => {
    const only = event.target.closest("[data-only]");
    if (only && filter) filter.only(only.dataset.only);
    else unstall.press(event, list);
  });

  unstall.bar(root, list, dated);
  const line = new URLSearchParams(location.search).get("line");
  if (line && filter) {
    state.sources = filter.sources;
    labels();
    unstall.still(list, older, filter, line, show);
  } else start();
})();
