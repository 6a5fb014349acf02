// Final loss against learning rate, and the map again for each seed and optimizer.

const MOST_RATES = 40, BIN_DECADES = 0.125, MOST_OTHERS = 24;

function quantile(sorted, share) {
  const at = (sorted.length - 1) * share;
  const below = Math.floor(at);
  return sorted[below] + (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]) * (at - below);
}

/** Median and outer tenths of the final losses, by rate or by bin: [{lr, low, middle, high}]. */
function quantiles(list) {
  const isJudged = ({ name, isHatched }) => name !== "diverged" && !isHatched;
  const known = list.filter((at) => trials.loss[at] !== null && isJudged(outcomes[trials.outcome[at]]));
  const isBinned = new Set(known.map((at) => trials.lr[at])).size > MOST_RATES;
  const bins = new Map();
  for (const at of known) {
    const bin = Math.floor(Math.log10(trials.lr[at]) / BIN_DECADES);
    const lr = isBinned ? 10 ** ((bin + 0.5) * BIN_DECADES) : trials.lr[at];
    if (!bins.has(lr)) bins.set(lr, []);
    bins.get(lr).push(trials.loss[at]);
  }
  return [...bins].sort((a, b) => a[0] - b[0]).map(([lr, losses]) => {
    losses.sort((a, b) => a - b);
    return { lr, low: quantile(losses, 0.1), middle: quantile(losses, 0.5), high: quantile(losses, 0.9) };
  });
}

class Losses {
  constructor(host, caption, onOpen) {
    this.caption = caption;
    this.onOpen = onOpen;
    this.spots = [];
    this.plot = new Plot(
      host,
      (width) => Math.min(Math.max(width * 0.4, 240), 360),
      () => ({ left: 58, right: 14, top: 34, bottom: 42 }),
      (plot, paint, box) => this.draw(plot, paint, box),
      "Final loss by learning rate; the list of trials below says the same",
    );
    host.addEventListener("click", (event) => {
      const { left, top } = host.getBoundingClientRect();
      const near = this.nearest(event.clientX - left, event.clientY - top);
      if (near !== null) this.onOpen(near);
    });
  }

  nearest(x, y) {
    let best = null, least = 12;
    for (const [px, py, at] of this.spots) {
      const off = Math.hypot(px - x, py - y);
      if (off < least) [best, least] = [at, off];
    }
    return best;
  }

  draw(plot, paint, box) {
    this.plot = plot;
    const { range, isLog } = data.losses;
    this.x = scaleOf(...data.lrRange, box.left, box.right, true);
    this.y = scaleOf(...range, box.bottom, box.top, isLog);
    this.rows = new Map();
    for (let at = 0; at < numTrials; at++) {
      if (!isShown(at)) continue;
      if (!this.rows.has(trials.row[at])) this.rows.set(trials.row[at], []);
      this.rows.get(trials.row[at]).push(at);
    }
    this.lines = new Map([...this.rows].map(([row, list]) => [row, quantiles(list)]));
    this.points(paint, box);
    this.mark();
  }

  points(paint, box) {
    const { x, y } = this;
    const { range } = data.losses;
    const lane = box.top - 18;
    const shown = [...this.rows.values()].flat();
    this.spots = [];
    const size = shown.length > 3000 ? 1.6 : shown.length > 500 ? 2.4 : 3.6;
    paint.lineWidth = 0.8;
    for (const at of shown) {
      const outcome = outcomes[trials.outcome[at]];
      const loss = trials.loss[at];
      const isOff = loss !== null && loss > range[1];
      const [px, py] = [x(trials.lr[at]), loss === null ? lane : isOff ? box.top : y(Math.max(loss, range[0]))];
      this.spots.push([px, py, at]);
      paint.fillStyle = colourOf(outcome);
      paint.strokeStyle = css("--ink");
      if (size < 2) {
        paint.fillRect(px - size, py - size, 2 * size, 2 * size);
        continue;
      }
      paint.beginPath();
      if (isOff) {
        paint.moveTo(px, py - 5);
        paint.lineTo(px + 4, py + 3);
        paint.lineTo(px - 4, py + 3);
        paint.closePath();
      } else paint.arc(px, py, size, 0, 7);
      paint.fill();
      paint.stroke();
    }
  }

  /** What lies over the points: it changes with the row that is looked at, they do not. */
  mark() {
    const { plot, x, y } = this;
    const { range, isLog } = data.losses;
    const { box } = plot;
    const lane = box.top - 18;
    fill(plot.svg);
    drawLevels(plot, lossLevels().filter(({ at }) => at > range[0] && at < range[1]), y, box.left + 6, "start");
    this.bands(plot, x, y, box);
    const ticks = logTicks(...data.lrRange, Math.max(Math.floor((box.right - box.left) / 70), 2));
    plot.axes(x, ticks, y, isLog ? logTicks(...range, 5) : linearTicks(...range, 5));
    plot.add("text", { class: "tick", x: box.left - 7, y: lane + 4, "text-anchor": "end" }, "not finite");
    plot.add("text", { class: "name", x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" },
      "learning rate");
    if (data.pick) {
      plot.add("path", { class: "level", d: `M${x(data.pick.lr)} ${box.top}V${box.bottom}` });
      plot.add("path", { class: "star", d: STAR, transform: `translate(${x(data.pick.lr)} ${box.bottom - 12})` });
    }
  }

  say(main, numRows) {
    const label = data.rows[main]?.label;
    const where = label ? ` of the row ${data.rowAxis} ${label}` : "";
    const others = numRows > 1 && numRows <= MOST_OTHERS ? " Thin lines: the other rows." : "";
    this.caption.textContent =
      `Line: the median${where}; band: eight tenths of its losses.${others} A triangle lies above the scale. Click a point to open its trial.`;
  }

  /** The median of every row, and the outer tenths of the one that is looked at. */
  bands(plot, x, y, box) {
    const { range } = data.losses;
    const clip = (value) => Math.min(Math.max(y(Math.max(value, range[0])), box.top), box.bottom);
    const path = (line, key) => line.map((p, k) => `${k ? "L" : "M"}${x(p.lr).toFixed(1)} ${clip(p[key]).toFixed(1)}`).join("");
    const first = this.lines.keys().next().value;
    const main = state.cell ? state.cell.group.rows[0] : data.pick ? data.pick.row : first;
    this.say(main, this.lines.size);
    const isFew = this.lines.size <= MOST_OTHERS;
    for (const [row, line] of [...this.lines].sort(([a]) => (a === main ? 1 : -1))) {
      if (line.length < 2 || (row !== main && !isFew)) continue;
      if (row === main) {
        const back = [...line].reverse().map((p) => `L${x(p.lr).toFixed(1)} ${clip(p.low).toFixed(1)}`).join("");
        plot.add("path", { class: "band", d: `${path(line, "high")}${back}Z` });
        plot.add("path", { class: "median", d: path(line, "middle") });
      } else plot.add("path", { class: "other", d: path(line, "middle") }, make("title", {}, data.rows[row].label));
    }
  }
}

/** Small maps, one a seed and optimizer: does the answer hang on either? */
class Multiples {
  constructor(host) {
    this.host = host;
    const axis = axes.indexOf("optimizer");
    const rules = hasParts && axis >= 0 ? [...new Set(data.rows.map((row) => row.parts[axis]).reverse())] : [null];
    const some = seeds.length > 1 ? seeds.slice(0, 8) : [null];
    this.panels = rules.flatMap((rule) => some.map((seed) => ({ rule, seed, axis })));
    this.hidden = seeds.length - some.length;
    if (this.panels.length < 2 || !numTrials) {
      const why = numTrials ? "One seed and one optimizer: there is nothing to set side by side. More seeds tell how much of the answer is chance." : "";
      fill(host, make("p", { class: "quiet" }, why));
      return;
    }
    const figures = this.panels.map((panel) => {
      const plot = make("div");
      const figure = make("figure", { class: "small" }, plot, make("figcaption", {}, this.caption(panel)));
      panel.plot = plot;
      return figure;
    });
    fill(host, make("div", { class: "grid" }, ...figures),
      this.hidden > 0 && some[0] !== null ? make("p", { class: "quiet" }, `${plural(this.hidden, "more seed")} not drawn.`) : null);
    for (const panel of this.panels)
      new Plot(panel.plot, 96, () => ({ left: 1, right: 1, top: 1, bottom: 1 }),
        (plot, paint, box) => this.draw(panel, paint, box, plot), this.caption(panel));
  }

  belongs(panel, at) {
    return (
      (panel.seed === null || trials.seed[at] === panel.seed) &&
      (panel.rule === null || data.rows[trials.row[at]].parts[panel.axis] === panel.rule)
    );
  }

  caption(panel) {
    const list = trials.number.map((_, at) => at).filter((at) => this.belongs(panel, at));
    const stable = list.filter((at) => ["converged", "recovered", "spiky", "too_slow"].includes(outcomes[trials.outcome[at]].name));
    const name = [panel.rule, panel.seed === null ? null : `seed ${panel.seed}`].filter((part) => part !== null).join(" · ");
    return `${name}: ${stable.length} of ${list.length} stable`;
  }

  draw(panel, paint, box, plot) {
    const rows = data.rows.map((_, at) => at).filter((at) => panel.rule === null || data.rows[at].parts[panel.axis] === panel.rule);
    const x = scaleOf(...data.lrRange, box.left, box.right, true);
    const height = (box.bottom - box.top) / rows.length;
    rows.forEach((row, place) => {
      const bottom = box.bottom - place * height;
      data.rows[row].cells.forEach(([, low, high], cell) => {
        const list = members[row][cell].filter((at) => this.belongs(panel, at));
        if (list.length) paintCell(paint, list, x(low), x(high), bottom - height + 0.5, bottom - 0.5, false);
      });
    });
    plot.add("rect", { class: "outline", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  }
}
