// What lines can be chosen by, as the sources themselves tell it: a menu for each label, none of them known beforehand.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const make = unstall.make;
  const SHOWN = 200; // values of one label in its menu; the others are found by typing
  const FIND_FROM = 12;
  let asking = null;

  const box = (name, value, isChosen, start) => {
    const label = make("label");
    label.title = value;
    const input = label.appendChild(make("input"));
    Object.assign(input, { type: "checkbox", name: "label", value: `${name}=${value}`, checked: isChosen });
    label.append(make("span", "", value.slice(start) || "(empty)"));
    return label;
  };

  // Below its summary, and within the form, which is as wide as the page.
  const put = (details) => {
    const [form, head, body] = [details.closest("form"), details.querySelector("summary"), details.querySelector("div")];
    const [frame, place] = [form.getBoundingClientRect(), head.getBoundingClientRect()];
    const most = frame.width - body.offsetWidth;
    body.style.setProperty("--x", `${Math.max(0, Math.min(place.left - frame.left, most))}px`);
    body.style.setProperty("--y", `${place.bottom - frame.top + 4}px`);
  };

  const menu = (name, values, chosen) => {
    const details = make("details", "log-label");
    const start = unstall.folder(values).length;
    const summary = (now) => (now.length ? `${name}: ${now.map((value) => value.slice(start)).join(", ")}` : name);
    const head = details.appendChild(make("summary", "", summary(chosen)));
    details.addEventListener("toggle", () => details.open && put(details));
    if (chosen.length) details.dataset.chosen = "";
    const body = details.appendChild(make("div"));
    const list = make("div", "values");
    const fill = (text = "") => {
      const kept = [...list.querySelectorAll(":checked")].map((input) => input.value.slice(name.length + 1));
      const now = list.isConnected ? kept : chosen;
      const others = values.filter((value) => !now.includes(value) && value.toLowerCase().includes(text.toLowerCase()));
      const found = [...now, ...others];
      list.replaceChildren(...found.slice(0, SHOWN).map((value) => box(name, value, now.includes(value), start)));
      if (found.length > SHOWN) list.append(make("span", "muted", `${(found.length - SHOWN).toLocaleString("en")} more: type to search`));
    };
    if (values.length > FIND_FROM) {
      const find = body.appendChild(make("input"));
      Object.assign(find, { type: "search", placeholder: "Find", autocomplete: "off" });
      find.setAttribute("aria-label", `Find a value of ${name}`);
      find.addEventListener("input", (event) => {
        event.stopPropagation(); // it is no part of the filter
        fill(find.value);
      });
    }
    fill();
    body.append(list);
    list.addEventListener("change", () => {
      const now = [...list.querySelectorAll(":checked")].map((input) => input.value.slice(name.length + 1));
      head.textContent = summary(now);
      details.toggleAttribute("data-chosen", now.length > 0);
    });
    return details;
  };

  const merged = (answers) => {
    const found = new Map();
    for (const { labels } of answers) {
      for (const [name, values] of Object.entries(labels)) {
        found.set(name, new Set([...(found.get(name) || []), ...values]));
      }
    }
    return found;
  };

  // `chosen`: those of the address, each NAME=VALUE; they stay, whether a source knows them or not.
  const offer = async (place, sources, { from, to }, chosen) => {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const answers = await Promise.all(
      sources.map((source) => {
        const query = new URLSearchParams({ source, ...(from && { from }), ...(to && { to }) });
        return unstall.asked(`/live/logs/labels?${query}`, signal).catch(() => ({ labels: {} }));
      }),
    );
    if (signal.aborted) return;
    const known = merged(answers);
    const picked = new Map();
    for (const label of chosen()) {
      const [name, value] = [label.slice(0, label.indexOf("=")), label.slice(label.indexOf("=") + 1)];
      picked.set(name, [...(picked.get(name) || []), value]);
      known.set(name, new Set([...(known.get(name) || []), value]));
    }
    if (place.querySelector("details[open]")) return; // somebody chooses right now
    const menus = [...known].sort(([one], [other]) => one.localeCompare(other));
    place.replaceChildren(...menus.map(([name, values]) => menu(name, [...values].sort(), picked.get(name) || [])));
    if (!menus.length) place.append(make("span", "muted", "none"));
  };

  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && event.target.closest?.("details.log-label[open]");
    if (!open) return;
    event.preventDefault();
    open.open = false;
    open.querySelector("summary").focus();
  });

  // One menu at a time; a click beside it closes it.
  document.addEventListener("click", (event) => {
    for (const one of document.querySelectorAll("details.log-label[open]")) if (!one.contains(event.target)) one.open = false;
  });

  Object.assign(unstall, { offer });
})();
