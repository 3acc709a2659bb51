// The filter of /logs: a form whose fields are the address of the page, and what the stream is asked for.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const TYPING_MS = 300;
  const SOURCES = 4; // in one stream
  const HOUR = 3600000;
  const RANGES = { "15m": HOUR / 4, "1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR };

  const local = (milliseconds) => {
    const here = new Date(milliseconds - new Date(milliseconds).getTimezoneOffset() * 60000);
    return here.toISOString().slice(0, 19);
  };

  class Filter {
    #typing = 0;
    #typed = false; // the last step in the history was typed

    // `chosen()`: something else is asked for than before.
    constructor(form, chosen) {
      this.form = form;
      this.chosen = chosen;
      for (const field of form.querySelectorAll("input[data-ms]")) if (field.dataset.ms) field.value = local(Number(field.dataset.ms));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.#apply();
      });
      form.addEventListener("change", (event) => event.target.name && event.target.type !== "text" && this.#apply());
      form.addEventListener("input", (event) => event.target.type === "text" && this.#soon());
      form.addEventListener("click", (event) => event.target.closest("[data-one-more]") && this.#oneMore(event.target));
      this.#show();
    }

    // The address of this page, with nothing in it that says nothing.
    get address() {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(this.form)) if (value && !["from", "to"].includes(name)) query.append(name, value);
      if (this.#range === "own") {
        query.delete("range");
        for (const [name, at] of Object.entries(this.moments(Date.now()))) query.set(name, at);
      }
      return query;
    }

    get isLive() {
      return !this.#range;
    }

    get sources() {
      const chosen = [...this.form.querySelectorAll("[name=source]:checked")].map((input) => input.value);
      return (chosen.length ? chosen : this.form.dataset.sources.split(" ")).slice(0, SOURCES);
    }

    // The name of a source as the page has it.
    called(source) {
      return this.form.querySelector(`[name=source][value="${source}"]`)?.parentElement.textContent.trim() || source;
    }

    get labels() {
      return [...this.form.querySelectorAll("[name=label]:checked")].map((input) => input.value);
    }

    // What is asked of the server: the sources by name, and the range as moments.
    query(now) {
      const query = this.address;
      for (const name of ["range", "source", "line"]) query.delete(name);
      for (const source of this.sources) query.append("source", source);
      for (const [name, at] of Object.entries(this.moments(now))) query.set(name, at);
      return query;
    }

    moments(now) {
      const range = this.#range;
      if (!range) return {};
      if (range in RANGES) return { from: now - RANGES[range], to: now };
      const [from, to] = ["from", "to"].map((name) => Date.parse(this.form.elements[name].value));
      const end = Number.isNaN(to) ? now : to;
      return { from: Math.max(0, Number.isNaN(from) || from >= end ? end - HOUR : from), to: end };
    }

    // Only lines with this label value, besides what is chosen of other labels.
    only(label) {
      const name = label.slice(0, label.indexOf("=") + 1);
      for (const input of this.form.querySelectorAll("[name=label]")) {
        if (input.value.startsWith(name)) input.checked = false;
      }
      const same = [...this.form.querySelectorAll("[name=label]")].find((input) => input.value === label);
      if (same) same.checked = true;
      else document.getElementById("log-labels").append(Object.assign(document.createElement("input"), { type: "checkbox", name: "label", value: label, checked: true, hidden: true }));
      this.#apply();
    }

    get #range() {
      return new FormData(this.form).get("range") || "";
    }

    #show() {
      const isOwn = this.#range === "own";
      this.form.querySelector("[data-all]").hidden = !String(this.address);
      if (!isOwn) return;
      for (const [name, at] of Object.entries(this.moments(Date.now()))) {
        if (!this.form.elements[name].value) this.form.elements[name].value = local(at);
      }
    }

    #soon() {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#apply(true), TYPING_MS);
    }

    // What is typed is one step back, not one for each letter.
    #apply(isTyped = false) {
      clearTimeout(this.#typing);
      this.#show();
      const query = String(this.address);
      const step = isTyped && this.#typed ? "replaceState" : "pushState";
      this.#typed = isTyped;
      if (query !== location.search.slice(1)) history[step](null, "", query ? `?${query}` : location.pathname);
      this.chosen();
    }

    #oneMore(button) {
      const last = button.previousElementSibling;
      const next = Object.assign(last.cloneNode(), { value: "" });
      next.removeAttribute("id");
      button.before(next);
      next.focus();
      button.hidden = this.form.querySelectorAll(`[name=${last.name}]`).length >= Number(this.form.dataset.terms);
    }
  }

  // Back and forward: the server draws the form of that address.
  window.addEventListener("popstate", () => location.reload());

  Object.assign(unstall, { Filter });
})();
