// Puts the page together: filters and legend, what a click opens, the address, printing.

const part = (name) => document.querySelector(`[data-part="${name}"]`);

function select(label, options, onChange) {
  const chosen = make("select", { "aria-label": label }, ...options.map(([value, text]) => make("option", { value }, text)));
  chosen.addEventListener("change", () => onChange(chosen.value));
  return make("label", {}, `${label} `, chosen);
}

function legend(onChange) {
  const counts = outcomes.map((_, index) => trials.outcome.filter((one) => one === index).length);
  return make("div", { class: "legend", role: "group", "aria-label": "Outcomes; press one to leave it out" },
    ...outcomes.map((outcome, index) => {
      if (!counts[index]) return null;
      const button = make("button", { type: "button", "aria-pressed": "true", title: outcome.sentence },
        chip(outcome), ` ${outcome.label} ${counts[index].toLocaleString("en")}`);
      button.addEventListener("click", () => {
        const isOn = state.hidden.delete(index) || !state.hidden.add(index);
        button.setAttribute("aria-pressed", String(isOn));
        onChange();
      });
      return button;
    }));
}

function scaleBar() {
  const { ends, badEnd, colours } = data.scale;
  if (!ends) return null;
  const ramp = make("span", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${colours.join(",")})`;
  return make("p", { class: "scale quiet" }, `final loss ${lossText(ends[0])} (best) `, ramp, ` ${lossText(ends[1])} (${badEnd})`);
}

/** What the lines on the map are. */
function lineKey() {
  const edges = data.rows.map((row) => row.edge);
  const isFound = edges.some((edge) => edge.status === "found");
  const entries = [
    [isFound, "edge", "edge: half of the trials fail above it"],
    [isFound, "interval", "its 95% interval"],
    [isFound && edges.some((edge) => edge.safe), "safe", "safe edge: 5% fail"],
    [data.rows.some((row) => row.theory), "theory", "edge of linear theory"],
    [data.pick, "star", "pick"],
  ];
  const sample = (kind) => {
    const inside = {
      star: () => make("path", { class: "star", d: STAR, transform: "translate(12 9) scale(.85)" }),
      interval: () => make("rect", { class: "interval", x: 5, y: 2, width: 14, height: 13 }),
    }[kind] ?? (() => make("path", { class: kind, d: "M12 1V17" }));
    return make("svg", { width: 24, height: 18, "aria-hidden": "true" }, inside());
  };
  const shown = entries.filter(([isThere]) => isThere);
  return make("p", { class: "key quiet" },
    ...shown.map(([, kind, text]) => make("span", {}, sample(kind), ` ${text}`)));
}

function start() {
  for (const section of document.querySelectorAll("section[hidden]")) section.hidden = false;
  if (!part("map")) {
    document.body.dataset.ready = "true";
    return;
  }
  const detail = new Detail(part("detail"), openTrial);
  const map = new StabilityMap(part("map"), part("readout"), openCell);
  const losses = new Losses(part("losses"), part("losses-caption"), openTrial);
  new Multiples(part("multiples"));
  const list = new List(part("list"), openTrial);

  function changed() {
    map.update();
    losses.plot.draw();
    list.update();
    detail.empty();
    setAddress(null);
  }

  function setAddress(at) {
    const place = at === null ? location.pathname + location.search : `#trial=${trials.number[at]}`;
    try {
      history.replaceState(null, "", place);
    } catch {
      if (at !== null) location.hash = place;
    }
  }

  async function openCell(found) {
    setAddress(null);
    if (found) await detail.cell(found);
    else detail.empty();
    losses.mark();
    list.show();
  }

  async function openTrial(at) {
    const group = map.groups.find((one) => one.rows.includes(trials.row[at]));
    const cell = group?.cells.find((one) => one.trials.includes(at));
    state.focus = state.cell = cell ? { group, cell } : null;
    map.mark();
    await detail.trial(at);
    setAddress(at);
    losses.mark();
    list.show();
  }

  async function openAddress() {
    const wanted = /^#trial=(\d+)$/.exec(location.hash);
    const at = wanted ? trials.number.indexOf(Number(wanted[1])) : -1;
    if (at >= 0) await openTrial(at);
    else if (map.start()) await map.pin(map.start());
    else detail.empty();
  }

  const all = [["", "all"]];
  const by = (values) => [...all, ...values.map((value) => [String(value), String(value)])];
  const choices = [];
  if (data.scale.ends)
    choices.push(select("Colour", [["loss", "final loss"], ["verdict", "verdict"]], (value) => {
      state.colour = value;
      Plot.redrawAll();
    }));
  if (hasParts && axes.length > 1)
    choices.push(select("Rows by", [["", "every row"], ...axes.map((name, axis) => [axis, name.replaceAll("_", " ")])], (value) => {
      state.groupBy = value === "" ? null : Number(value);
      changed();
    }));
  if (hasParts && axes.length > 1)
    axes.forEach((name, axis) => {
      const values = [...new Set(data.rows.map((row) => row.parts[axis]))];
      if (values.length > 1)
        choices.push(select(name.replaceAll("_", " "), by(values), (value) => {
          state.parts[axis] = value === "" ? null : value;
          changed();
        }));
    });
  if (seeds.length > 1)
    choices.push(select("Seed", by(seeds), (value) => {
      state.seed = value === "" ? null : Number(value);
      changed();
    }));
  fill(part("choices"), ...choices, make("button", { type: "button", onclick: () => location.reload() }, "Reset"));
  fill(part("legend"), legend(changed), scaleBar(), lineKey());
  for (const shown of document.querySelectorAll("pre[data-copy]")) {
    const host = make("div", { class: "copyable" });
    shown.replaceWith(host);
    host.append(shown, copyButton(shown.textContent, shown));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Plot.redrawAll());
  const print = (isOn) => {
    isPrinting = isOn;
    Plot.redrawAll();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  addEventListener("hashchange", openAddress);
  document.body.dataset.ready = "shown";
  openAddress().then(() => (document.body.dataset.ready = "true"));
}

start();
