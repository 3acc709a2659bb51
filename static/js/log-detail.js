// A line opened: its labels, its exact time, its link; and the lines around it, in a dialog.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const make = unstall.make;
  let asking = null;

  const zone = (moment) => {
    const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(moment);
    return parts.find((part) => part.type === "timeZoneName").value;
  };

  const close = () => document.getElementById("log-detail")?.remove();

  const button = (text, act) => {
    const made = make("button", "", text);
    made.type = "button";
    if (typeof act === "string") made.dataset.copy = act;
    else made.addEventListener("click", act);
    return made;
  };

  const labels = (item, canChoose) => {
    const list = make("dl", "facts");
    list.append(make("dt", "", "Time"), make("dd", "mono", `${unstall.exactly(item.at)} ${zone(unstall.moment(item.at))}`));
    for (const [name, value] of Object.entries(item.labels)) {
      const told = make("dd", "mono", value);
      if (canChoose) {
        const only = told.appendChild(button("only this value", () => {}));
        only.dataset.only = `${name}=${value}`;
        only.dataset.kind = "quiet";
        only.setAttribute("aria-label", `Only lines with ${name}=${value}`);
      }
      list.append(make("dt", "", name), told);
    }
    return list;
  };

  // The line as it is; the server records who asked.
  const reveal = async (row, address) => {
    const item = row.item;
    const query = new URLSearchParams({ source: item.source, id: item.id });
    for (const label of unstall.written(item.labels).slice(0, 10)) query.append("label", label);
    const headers = JSON.parse(document.body.getAttribute("hx-headers"));
    const answer = await fetch(`${address}?${query}`, { method: "POST", headers });
    const told = answer.ok ? await answer.json() : { text: `The value could not be revealed (${answer.status}).` };
    row.querySelector(".said").textContent = told.text;
  };

  const open = (row, canChoose) => {
    const wasOpen = row.nextElementSibling?.id === "log-detail";
    close();
    if (wasOpen) return;
    const detail = make("li", "log-detail");
    detail.id = "log-detail";
    const link = make("input", "mono");
    Object.assign(link, { id: "log-link", readOnly: true, value: new URL(unstall.address(row.item), location.href).href });
    link.setAttribute("aria-label", "Link to this line");
    row.querySelector(".said").id = "log-said";
    const acts = make("p", "acts");
    acts.append(button("Surrounding lines", () => around(row.item)), button("Copy", "log-said"), link, button("Copy link", "log-link"));
    const address = row.closest("[data-reveals]")?.dataset.reveals;
    if (address) acts.append(button("Reveal", () => reveal(row, address)));
    detail.append(labels(row.item, canChoose), acts);
    row.after(detail);
  };

  // The lines around one, the one itself marked.
  const draw = (rows, told, item) => {
    const origins = new unstall.Origins();
    const items = unstall.unpack(told, item.source);
    for (const one of items) origins.see(one.labels);
    rows.replaceChildren(...items.map((one) => unstall.line(one, origins)));
    origins.fit(rows);
    const mine = [...rows.children].find((row) => row.item.id === item.id);
    if (mine) {
      mine.setAttribute("aria-current", "true");
      mine.scrollIntoView({ block: "center" });
    }
  };

  const ask = (source, id, chosen, signal) => {
    const query = new URLSearchParams({ source, id });
    for (const label of chosen) query.append("label", label);
    return unstall.asked(`/live/logs/around?${query}`, signal);
  };

  const around = async (item) => {
    const dialog = document.getElementById("log-around");
    const rows = dialog.querySelector("ol");
    asking?.abort();
    asking = new AbortController();
    rows.replaceChildren(unstall.note({ kind: "searching", text: "Reading…" }));
    dialog.querySelector("a").href = unstall.address(item);
    dialog.querySelector(".sub").textContent = unstall.written(item.labels).join(" · ");
    if (!dialog.open) dialog.showModal();
    const signal = asking.signal;
    try {
      draw(rows, await ask(item.source, item.id, unstall.written(item.labels).slice(0, 10), signal), item);
    } catch (trouble) {
      if (!signal.aborted) rows.replaceChildren(unstall.note({ kind: "trouble", text: trouble.message, advice: trouble.advice }));
    }
  };

  // The page of one line: nothing comes by itself until the reader asks for it.
  const still = async (list, older, filter, id, show) => {
    const source = filter.sources[0];
    Object.assign(list, { still: true, paused: true });
    older.reset(String(filter.query(Date.now())));
    document.body.dispatchEvent(new CustomEvent("unstall:stream", { detail: { path: "/live/events" } }));
    show();
    try {
      const told = await ask(source, id, filter.labels);
      if (!list.still) return;
      older.learn(source, told.before);
      draw(list.rows, told, { source, id });
    } catch (trouble) {
      if (list.still) list.rows.replaceChildren(unstall.note({ kind: "trouble", text: trouble.message, advice: trouble.advice }));
    }
    show();
  };

  const press = (event, list) => {
    const at = event.target.closest("a.at");
    if (!at || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    list.pause();
    document.getElementById("log-said")?.removeAttribute("id");
    open(at.closest("li"), "choose" in list.box.closest("[data-logs]").dataset);
  };

  // j and k: to the next line or the one before, from the last one on.
  const step = (list, by) => {
    const rows = [...list.rows.children].filter((row) => row.item);
    const here = rows.indexOf(document.activeElement.closest(".log-line"));
    list.pause();
    rows[here < 0 ? rows.length - 1 : Math.max(0, Math.min(rows.length - 1, here + by))]?.querySelector(".at").focus();
  };

  document.addEventListener("unstall:let-go", close);

  Object.assign(unstall, { press, still, step });
})();
