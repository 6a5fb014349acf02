// The map: cells by the share of each outcome, edges with their intervals, the pick.

const STAR = "M0-9 2.6-3 9-2.8 4 1.4 5.6 8 0 4.2-5.6 8-4 1.4-9-2.8-2.6-3z";

/** Fills the box of a cell with its trials, stacked by outcome. */
function paintCell(paint, list, x0, x1, y0, y1, hasGlyphs) {
  let bottom = y1;
  for (const [outcome, some] of byOutcome(list)) {
    const height = ((y1 - y0) * some.length) / list.length;
    const top = bottom - height;
    const isLoss = outcome.onScale && state.colour === "loss";
    paint.fillStyle = isLoss ? lossColour(meanLoss(some)) : colourOf(outcome);
    paint.fillRect(x0, top, x1 - x0, height);
    if (outcome.isHatched) hatch(paint, x0, x1, top, bottom);
    const isTold = isLoss ? outcome.name === "spiky" : true;
    if (hasGlyphs && isTold && x1 - x0 >= 11 && height >= 13) {
      paint.fillStyle = isLoss ? css("--ink") : inkOf(outcome);
      paint.fillText(outcome.glyph, (x0 + x1) / 2, (top + bottom) / 2 + 1);
    }
    bottom = top;
  }
}

function hatch(paint, x0, x1, y0, y1) {
  paint.save();
  paint.beginPath();
  paint.rect(x0, y0, x1 - x0, y1 - y0);
  paint.clip();
  paint.strokeStyle = css("--quiet");
  paint.lineWidth = 0.8;
  paint.beginPath();
  for (let at = x0 - (y1 - y0); at < x1; at += 6) {
    paint.moveTo(at, y1);
    paint.lineTo(at + (y1 - y0), y0);
  }
  paint.stroke();
  paint.restore();
}

class StabilityMap {
  constructor(host, readout, onPin) {
    this.readout = readout;
    this.onPin = onPin;
    this.plot = new Plot(
      host,
      () => this.groups.length * this.rowHeight() + 66,
      (width) => ({ left: this.labelWidth(width), right: 14, top: 20, bottom: 46 }),
      (plot, paint, box) => this.draw(plot, paint, box),
      "Stability map; the tables below say the same",
    );
    host.tabIndex = 0;
    host.setAttribute("role", "application");
    host.setAttribute("aria-roledescription", "stability map");
    host.setAttribute(
      "aria-label",
      "Stability map. Arrow keys move over the cells, Enter opens one, Escape closes it.",
    );
    host.addEventListener("pointermove", (event) => this.point(event, false));
    host.addEventListener("click", (event) => this.point(event, true));
    host.addEventListener("pointerleave", () => {
      state.focus = state.cell;
      this.mark();
    });
    host.addEventListener("keydown", (event) => this.key(event));
  }

  rowName() {
    return state.groupBy === null ? data.rowAxis : axes[state.groupBy].replaceAll("_", " ");
  }

  rowHeight() {
    const count = this.groups.length;
    if (count === 1) return 110;
    return Math.min(Math.max(Math.round((count > 30 ? 600 : 380) / Math.max(count, 1)), count > 30 ? 4 : 22), 58);
  }

  labelWidth(width) {
    const longest = Math.max(0, ...this.groups.map((group) => group.label.length));
    return Math.min(Math.max(longest * 7.2 + 24, 24), width * 0.34);
  }

  get groups() {
    if (!this.known) this.known = groups();
    return this.known;
  }

  /** Told that filters have changed. */
  update() {
    this.known = null;
    state.focus = state.cell = null;
    this.plot.draw();
  }

  draw(plot, paint, box) {
    this.plot = plot; // the first drawing comes before the constructor has it
    const [low, high] = data.lrRange;
    this.x = scaleOf(low, high, box.left, box.right, true);
    const height = this.rowHeight();
    paint.textAlign = "center";
    paint.textBaseline = "middle";
    paint.font = "11px system-ui, sans-serif";
    this.groups.forEach((group, number) => {
      const [top, bottom] = this.rowEnds(number);
      for (const cell of group.cells) {
        const [x0, x1] = [this.x(cell.low), this.x(cell.high)];
        if (cell.trials.length) paintCell(paint, cell.trials, x0, x1, top + 1, bottom - 1, true);
        if (data.isScattered && cell.trials.length) {
          paint.fillStyle = css("--paper");
          paint.strokeStyle = css("--ink");
          paint.beginPath();
          paint.arc(this.x(cell.lr), bottom - 5, 1.8, 0, 7);
          paint.fill();
          paint.stroke();
        }
      }
      if (this.isNamed(number, height)) this.rowLabel(plot, box, group, (top + bottom) / 2);
    });
    const ticks = logTicks(low, high, Math.max(Math.floor((box.right - box.left) / 70), 2));
    plot.axes(this.x, ticks, null, []);
    plot.add("text", { class: "name", x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" },
      "learning rate");
    if (data.rowAxis) plot.add("text", { class: "name", x: 0, y: 12 }, this.rowName());
    this.groups.forEach((group, number) => this.edge(plot, box, group, ...this.rowEnds(number)));
    this.rings = ["ring-halo", "ring"].map((kind) => plot.add("rect", { class: kind }));
    this.star(plot);
    this.mark();
  }

  rowEnds(number) {
    const { top } = this.plot.box;
    const height = this.rowHeight();
    const place = this.groups.length - 1 - number;
    return [top + place * height, top + (place + 1) * height];
  }

  /** Where rows are low only some have room for their names: the picked one, and those not beside it. */
  isNamed(number, height) {
    const every = Math.ceil(14 / height);
    if (every === 1 || !data.pick) return number % every === 0;
    const picked = this.groups.findIndex((group) => group.rows.includes(data.pick.row));
    return number === picked || (number % every === 0 && Math.abs(number - picked) >= every);
  }

  rowLabel(plot, box, group, y) {
    const isPicked = data.pick && group.rows.includes(data.pick.row);
    const most = Math.floor((box.left - 16) / 7);
    const label = group.label.length > most ? `${group.label.slice(0, most - 1)}…` : group.label;
    plot.add("text", { class: isPicked ? "row picked" : "row", x: box.left - 8, y: y + 4, "text-anchor": "end" },
      label, make("title", {}, group.label));
  }

  edge(plot, box, group, top, bottom) {
    if (group.row === null) return;
    const { status, lr, low, high, safe } = data.rows[group.row].edge;
    const clip = (value) => Math.min(Math.max(this.x(value), box.left), box.right);
    if (status === "found") {
      plot.add("rect", {
        class: "interval", x: clip(low), width: Math.max(clip(high) - clip(low), 1), y: top + 1,
        height: bottom - top - 2,
      });
      this.line(plot, "edge", this.x(lr), top, bottom);
    } else if (status !== "unknown" && bottom - top >= 16) {
      const [at, text, anchor] =
        status === "above" ? [box.right - 6, "edge not reached ▸", "end"] : [box.left + 6, "◂ nothing held", "start"];
      plot.add("text", { class: "note", x: at, y: (top + bottom) / 2 + 4, "text-anchor": anchor }, text);
    }
    if (safe && status === "found") this.line(plot, "safe", this.x(safe), top, bottom);
    const { theory } = data.rows[group.row];
    if (theory && theory > data.lrRange[0] && theory < data.lrRange[1])
      this.line(plot, "theory", this.x(theory), top, bottom);
  }

  line(plot, kind, x, top, bottom) {
    plot.add("path", { class: "halo", d: `M${x} ${top + 1}V${bottom - 1}` });
    plot.add("path", { class: kind, d: `M${x} ${top + 1}V${bottom - 1}` });
  }

  star(plot) {
    const number = data.pick ? this.groups.findIndex((group) => group.rows.includes(data.pick.row)) : -1;
    if (number < 0) return;
    const [top, bottom] = this.rowEnds(number);
    const x = this.x(data.pick.lr), y = (top + bottom) / 2;
    const isKnown = this.groups[number].row !== null && data.pick.edge;
    if (isKnown) {
      const end = this.x(data.pick.edge);
      plot.add("path", { class: "halo", d: `M${x} ${y}H${end}` });
      plot.add("path", { class: "margin", d: `M${x} ${y}H${end}m-5-4 5 4-5 4` });
    }
    plot.add("path", { class: "star", d: STAR, transform: `translate(${x} ${y})` });
    plot.add("text", { class: "note strong", x: x - 12, y: y + 4, "text-anchor": "end" }, `pick ${data.pick.text}`);
  }

  /** The cell under a point: the one whose box it is in, else the nearest of its row. */
  at(event) {
    const { left, top } = this.plot.host.getBoundingClientRect();
    const { box } = this.plot;
    const [px, py] = [event.clientX - left, event.clientY - top];
    const place = Math.floor((py - box.top) / this.rowHeight());
    const number = this.groups.length - 1 - place;
    const cells = this.groups[number]?.cells.filter((cell) => cell.trials.length);
    if (!cells?.length || px < box.left - 4 || px > box.right + 4) return null;
    const lr = this.x.back(px);
    const inside = cells.find((cell) => lr >= cell.low && lr <= cell.high);
    return inside ? { group: this.groups[number], cell: inside } : null;
  }

  point(event, isClick) {
    const found = this.at(event);
    if (isClick) {
      this.plot.host.focus({ preventScroll: true });
      if (found) this.pin(found);
      else this.clear();
      return;
    }
    if (found?.cell === state.focus?.cell) return;
    state.focus = found;
    this.mark();
  }

  pin(found) {
    state.focus = state.cell = found;
    this.mark();
    return this.onPin(found);
  }

  clear() {
    state.focus = state.cell = null;
    this.mark();
    this.onPin(null);
  }

  key(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] };
    if (event.key === "Escape") this.clear();
    else if (event.key === "Enter" || event.key === " ") {
      if (state.focus) this.pin(state.focus);
    } else if (moves[event.key]) this.move(...moves[event.key]);
    else if (event.key === "Home" || event.key === "End") this.move(0, event.key === "Home" ? -1e9 : 1e9);
    else return;
    event.preventDefault();
  }

  move(up, right) {
    const filled = this.groups.filter((group) => group.cells.some((cell) => cell.trials.length));
    if (!filled.length) return;
    let { group, cell } = state.focus ?? this.start() ?? { group: filled[0], cell: null };
    const number = filled.indexOf(group);
    group = filled[Math.min(Math.max(number + up, 0), filled.length - 1)];
    const cells = group.cells.filter((one) => one.trials.length);
    const wanted = Math.log(cell ? cell.lr : cells[0].lr);
    let place = cells.indexOf(cell);
    if (place < 0)
      place = cells.reduce((best, one, at) =>
        Math.abs(Math.log(one.lr) - wanted) < Math.abs(Math.log(cells[best].lr) - wanted) ? at : best, 0);
    if (state.focus) place = Math.min(Math.max(place + right, 0), cells.length - 1);
    state.focus = { group, cell: cells[place] };
    this.mark();
  }

  /** The pick's cell, from which the keyboard sets out. */
  start() {
    if (!data.pick) return null;
    const group = this.groups.find((one) => one.rows.includes(data.pick.row));
    const cells = group?.cells.filter((cell) => cell.trials.length) ?? [];
    const off = (cell) => Math.abs(Math.log(cell.lr / data.pick.lr));
    const cell = cells.reduce((best, one) => (!best || off(one) < off(best) ? one : best), null);
    return cell && { group, cell };
  }

  /** Outlines what is in focus and says what it is. */
  mark() {
    const { focus } = state;
    const number = focus ? this.groups.indexOf(focus.group) : -1;
    if (number < 0) {
      for (const ring of this.rings ?? []) ring.setAttribute("visibility", "hidden");
      this.readout.textContent = numTrials ? "Point at a cell, or use the arrow keys; Enter opens it." : "";
      return;
    }
    const [top, bottom] = this.rowEnds(number);
    const [x0, x1] = [this.x(focus.cell.low), this.x(focus.cell.high)];
    const box = { x: x0 - 1, y: top, width: Math.max(x1 - x0, 2) + 2, height: bottom - top, visibility: "visible" };
    for (const ring of this.rings)
      for (const [name, value] of Object.entries(box)) ring.setAttribute(name, value);
    this.readout.textContent = cellText(focus.group, focus.cell);
  }
}
