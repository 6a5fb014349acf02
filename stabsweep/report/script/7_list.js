// The trials as a list: sorted, searched, fifty at a time, and as a file for other programs.

const PER_PAGE = 50;

class List {
  constructor(host, onOpen) {
    this.onOpen = onOpen;
    this.page = 0;
    this.search = "";
    this.columns = [
      ["trial", (at) => trials.number[at], true],
      ["learning rate", (at) => trials.lr[at], true],
      ...axes.map((name, axis) => [name.replaceAll("_", " "), (at) => words[trials.axes[at][axis]], false]),
      ["seed", (at) => trials.seed[at], true],
      ["verdict", (at) => trials.outcome[at], true],
      ["final loss", (at) => trials.loss[at] ?? Infinity, true],
      ["steps", (at) => trials.steps[at], true],
      ["why", (at) => words[trials.why[at]], false],
    ];
    this.sort = { column: 0, isDown: false };
    const search = make("input", { type: "search", placeholder: "a word of verdict, row or reason", "aria-label": "Search the trials" });
    search.addEventListener("input", () => this.find(search.value));
    const file = make("button", { type: "button", onclick: () => this.save() }, "Save as CSV");
    this.count = make("span", { class: "quiet", role: "status" });
    this.head = this.columns.map(([name], column) =>
      make("th", { scope: "col" }, make("button", { type: "button", class: "sort", onclick: () => this.sortBy(column) }, name)));
    this.body = make("tbody");
    this.pager = make("div", { class: "controls" });
    fill(host,
      make("div", { class: "controls" }, search, file, this.count),
      make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...this.head)), this.body)),
      this.pager);
    this.arrange();
    this.update();
  }

  /** Told that filters have changed. */
  update() {
    const wanted = this.search.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = this.order.filter((at) => {
      if (!isShown(at)) return false;
      if (wanted.length) {
        const text = `${outcomes[trials.outcome[at]].label} ${words[trials.at[at]]} ${words[trials.why[at]]} seed ${trials.seed[at]}`.toLowerCase();
        return wanted.every((word) => text.includes(word));
      }
      return true;
    });
    this.show();
  }

  find(text) {
    this.search = text;
    this.page = 0;
    this.update();
  }

  sortBy(column) {
    this.sort = { column, isDown: this.sort.column === column && !this.sort.isDown };
    this.page = 0;
    this.arrange();
    this.update();
  }

  /** Puts all trials in order, once for every choice of it. */
  arrange() {
    const [, value, isNumber] = this.columns[this.sort.column];
    this.order = trials.number.map((_, at) => at);
    const keys = this.order.map(value);
    const compare = isNumber ? (a, b) => (a === b ? 0 : a < b ? -1 : 1) : (a, b) => a.localeCompare(b, "en", { numeric: true });
    const sign = this.sort.isDown ? -1 : 1;
    this.order.sort((a, b) => sign * compare(keys[a], keys[b]) || trials.number[a] - trials.number[b]);
    this.head.forEach((cell, column) => {
      const isHere = column === this.sort.column;
      if (isHere) cell.setAttribute("aria-sort", this.sort.isDown ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  show() {
    const last = Math.max(Math.ceil(this.found.length / PER_PAGE) - 1, 0);
    this.page = Math.min(this.page, last);
    const some = this.found.slice(this.page * PER_PAGE, (this.page + 1) * PER_PAGE);
    this.count.textContent = `${this.found.length.toLocaleString("en")} of ${plural(numTrials, "trial")}`;
    fill(this.body, ...some.map((at) => this.row(at)));
    const step = (by, text) =>
      make("button", { type: "button", disabled: this.page + by < 0 || this.page + by > last, onclick: () => { this.page += by; this.show(); } }, text);
    fill(this.pager, last ? step(-1, "Back") : null, last ? make("span", {}, `page ${this.page + 1} of ${last + 1}`) : null, last ? step(1, "Next") : null);
  }

  row(at) {
    const outcome = outcomes[trials.outcome[at]];
    const open = make("button", { type: "button", class: "open", onclick: () => this.onOpen(at) }, String(trials.number[at]));
    return make("tr", { "aria-current": at === state.trial ? "true" : null, onclick: (event) => event.target === open || this.onOpen(at) },
      make("td", {}, open),
      make("td", {}, rate(trials.lr[at], 3)),
      ...trials.axes[at].map((word) => make("td", {}, words[word])),
      make("td", {}, String(trials.seed[at])),
      make("td", {}, chip(outcome), ` ${outcome.label}`),
      make("td", {}, lossText(trials.loss[at])),
      make("td", {}, trials.steps[at].toLocaleString("en")),
      make("td", { class: "text" }, words[trials.why[at]]));
  }

  csv() {
    // A cell that a spreadsheet would read as a formula is told to be text.
    const cell = (value) => {
      const text = String(value ?? "");
      const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = [["trial", "lr", ...axes, "seed", "verdict", "final_loss", "steps", "why"]];
    for (const at of this.found)
      lines.push([trials.number[at], trials.lr[at], ...trials.axes[at].map((word) => words[word]), trials.seed[at],
        outcomes[trials.outcome[at]].name, trials.loss[at], trials.steps[at], words[trials.why[at]]]);
    return `${lines.map((line) => line.map(cell).join(",")).join("\n")}\n`;
  }

  save() {
    const link = make("a", { href: URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })), download: "trials.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
