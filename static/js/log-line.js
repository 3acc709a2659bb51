// Lines of logs and notes about them as elements. Whatever stands in a line is text and nothing else.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const TONES = { trouble: "bad", gap: "warn", dropped: "warn", limit: "warn", recovered: "good" };
  const NAMES_SHOWN = 8; // of labels that exist, and values of each: what a person still reads
  const VALUES_SHOWN = 12;
  const ORIGINS_SHOWN = 3;
  const ORIGIN_WIDTH = 32; // of all together
  const ORIGIN_LIMIT = 28; // characters; of a path its end says more

  const make = (tag, className = "", text = "") => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text) element.textContent = text;
    return element;
  };

  const two = (number) => String(number).padStart(2, "0");

  // Nanoseconds as text: no number of JavaScript holds them.
  const moment = (at) => new Date(Number(at.slice(0, -6)));

  const clock = (at) => {
    const then = moment(at);
    const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join(":");
    const isToday = then.toDateString() === new Date().toDateString();
    const day = isToday ? "" : `${two(then.getMonth() + 1)}-${two(then.getDate())} `;
    return `${day}${time}.${String(then.getMilliseconds()).padStart(3, "0")}`;
  };

  const exactly = (at) => {
    const then = moment(at);
    const day = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
    return `${day} ${[then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join(":")}.${at.slice(-9)}`;
  };

  // The folder that all of these values have in common, "" when they have none: what is behind it tells them apart.
  const folder = (values) => {
    const [first = "", ...others] = values;
    let end = first.lastIndexOf("/") + 1;
    for (const one of others) while (end > 0 && !one.startsWith(first.slice(0, end))) end = first.lastIndexOf("/", end - 2) + 1;
    return end > 1 ? first.slice(0, end) : "";
  };

  // Which labels tell the lines on the page apart: only those are worth the room beside each line.
  class Origins {
    #seen = new Map();
    #folders = new Map(); // of the values of those that tell lines apart
    #sets = new Set();
    #width = 0; // characters of the longest

    // True when the lines that stand there already need another word.
    see(labels) {
      const key = JSON.stringify(labels);
      if (this.#sets.has(key)) return false;
      this.#sets.add(key);
      const before = this.#told();
      for (const [name, value] of Object.entries(labels)) {
        if (!this.#seen.has(name)) this.#seen.set(name, new Set());
        this.#seen.get(name).add(value);
      }
      const isOther = this.#told() !== before;
      if (isOther) this.#width = 0;
      return isOther;
    }

    // A line that has none of them, as one from another source, says all that it has.
    of(labels) {
      const told = this.#names().map((name) => labels[name]?.slice(this.#folders.get(name).length)).filter(Boolean);
      if (!told.length && this.#sets.size > 1) told.push(...Object.values(labels));
      const text = told.slice(0, ORIGINS_SHOWN).map((one) => (one.length > ORIGIN_LIMIT ? `…${one.slice(-ORIGIN_LIMIT)}` : one)).join(" · ");
      this.#width = Math.max(this.#width, Math.min(text.length, ORIGIN_WIDTH));
      return text;
    }

    // A column as wide as it must be.
    fit(rows) {
      const width = `${this.#width}ch`;
      if (rows.style.getPropertyValue("--from") === width) return;
      rows.style.setProperty("--from", width);
      rows.toggleAttribute("data-from", this.#width > 0);
    }

    // What decides on the words of every line.
    #told() {
      const names = this.#names();
      this.#folders = new Map(names.map((name) => [name, folder(this.#seen.get(name))]));
      return JSON.stringify([...this.#folders]);
    }

    #names() {
      return [...this.#seen].filter(([, values]) => values.size > 1).map(([name]) => name);
    }
  }

  const written = (labels) => Object.entries(labels).map(([name, value]) => `${name}=${value}`);

  const address = (item) => {
    const query = new URLSearchParams({ source: item.source });
    for (const label of written(item.labels).slice(0, NAMES_SHOWN)) query.append("label", label);
    query.set("line", item.id);
    return `/logs?${query}`;
  };

  const said = (item) => {
    const place = make("span", "said");
    if (typeof item.text === "string") place.textContent = item.text;
    else {
      for (const [look, text] of item.text) {
        const part = place.appendChild(make("span", "", text));
        if (look) part.dataset.look = look;
      }
    }
    if (item.left) place.append(make("span", "cut", ` … ${item.left.toLocaleString("en")} more bytes omitted`));
    return place;
  };

  const line = (item, origins) => {
    const row = make("li", "log-line");
    row.item = item;
    if (item.level) row.dataset.level = item.level;
    const at = row.appendChild(make("a", "at", clock(item.at)));
    at.href = address(item);
    at.tabIndex = -1; // thousands of stops for the Tab key would shut the rest of the page off; j and k come here
    at.title = exactly(item.at);
    row.append(make("span", "level", item.level), make("span", "from", origins.of(item.labels)), said(item));
    return row;
  };

  const choices = (labels) => {
    const place = make("span", "choices");
    for (const [name, values] of Object.entries(labels).slice(0, NAMES_SHOWN)) {
      for (const value of values.slice(0, VALUES_SHOWN)) {
        const button = place.appendChild(make("button", "", `${name}=${value}`));
        button.type = "button";
        button.dataset.only = `${name}=${value}`;
      }
      const more = values.length - VALUES_SHOWN;
      if (more > 0) place.append(make("span", "muted", ` and ${more.toLocaleString("en")} more of ${name}`));
    }
    return place;
  };

  // A document that is named is a link, as in what the server draws.
  const linked = (words) => {
    const place = make("span");
    for (const part of words.split(/(docs\/[a-z0-9-]+\.md)/)) {
      if (!part.startsWith("docs/")) place.append(part);
      else place.append(Object.assign(make("a", "link", part), { href: `/${part.slice(0, -3)}` }));
    }
    return place;
  };

  const note = (item) => {
    const row = make("li", "log-note");
    row.dataset.tone = TONES[item.kind] || "note";
    row.append(make("b", "", item.of ? `${item.of}: ${item.text}` : item.text));
    if (item.advice) row.append(linked(item.advice));
    if (item.labels && Object.keys(item.labels).length) row.append(choices(item.labels));
    return row;
  };

  // What an event or an answer holds, as items.
  const unpack = (told, source = told.source) =>
    told.lines.map(([id, at, level, set, text, left]) => ({ source, id, at, level, text, left, labels: told.sets[set] }));

  Object.assign(unstall, { make, moment, clock, exactly, folder, Origins, written, address, said, line, note, unpack });
})();
