// What all parts share: the data, elements, numbers, colours, a plot with a canvas under an SVG.

const data = JSON.parse(document.getElementById("data").textContent);
const trials = data.trials;
const numTrials = trials.number.length;
const words = data.words;
let isPrinting = false;

/** An element with attributes and children; text is only ever text. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "path", "line", "rect", "text", "circle", "title", "polyline"].includes(tag);
  const made = isSvg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function fill(host, ...children) {
  host.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** As `numerals.rate`: two digits, plain from 0.1 to 999. */
function rate(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const rounded = Number(value.toPrecision(digits));
  if (Math.abs(rounded) >= 0.1 && Math.abs(rounded) < 1000) return String(rounded);
  const [mantissa, exponent] = rounded.toExponential(digits - 1).split("e");
  const kept = mantissa.length - digits + 2;
  return `${mantissa.slice(0, kept)}${mantissa.slice(kept).replace(/0+$/, "")}e${Number(exponent)}`;
}

/** As `numerals.loss`: three digits, plain from 0.01 to 999. */
function lossText(value) {
  if (value === null || value === undefined) return "not finite";
  if (value === 0) return "0";
  if (Math.abs(value) >= 0.01 && Math.abs(value) < 999.5) return value.toPrecision(3).replace(/\.$/, "");
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${mantissa}e${Number(exponent)}`;
}

function tickText(value) {
  return rate(value).replace(".0e", "e");
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Asked for each of many cells and points, and costly to look up: known until the paper changes.
const palette = new Map();

function css(name) {
  if (!palette.has(name))
    palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return palette.get(name);
}

function isDark() {
  const query = "(prefers-color-scheme: dark)";
  if (!palette.has(query)) palette.set(query, !isPrinting && matchMedia(query).matches);
  return palette.get(query);
}

/** An outcome's colour: black and white change sides where the paper is dark. */
function colourOf(outcome) {
  if (outcome.isHatched) return css("--paper");
  return (isDark() && outcome.dark) || outcome.colour;
}

function inkOf(outcome) {
  if (outcome.isHatched) return css("--ink");
  return isDark() && outcome.dark ? "#1A1A1A" : outcome.ink;
}

/** The colour of a final loss, from the best to the blind one. */
function lossColour(loss) {
  const { colours, ends, isLog } = data.scale;
  if (!ends || loss === null) return colours[0];
  const [good, bad] = isLog ? ends.map(Math.log) : ends;
  const value = isLog ? Math.log(Math.max(loss, Number.MIN_VALUE)) : loss;
  const place = Math.min(Math.max((value - good) / (bad - good), 0), 1) * (colours.length - 1);
  const below = Math.min(Math.floor(place), colours.length - 2);
  const mixed = [1, 3, 5].map((at) => {
    const [one, other] = [colours[below], colours[below + 1]].map((c) => parseInt(c.slice(at, at + 2), 16));
    return Math.round(one + (other - one) * (place - below));
  });
  return `rgb(${mixed.join(",")})`;
}

/** Round numbers between two ends of a log axis. */
function logTicks(low, high, most) {
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of factors) {
        const tick = Number(`${factor}e${power}`);
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    if (ticks.length <= most) return ticks;
    if (factors.length === 1) return ticks.filter((_, at) => at % Math.ceil(ticks.length / most) === 0);
  }
}

function linearTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9); k++)
    ticks.push(Number((k * step).toPrecision(10)));
  return ticks;
}

/** From values to pixels; `back` goes the other way. */
function scaleOf(low, high, start, stop, isLog) {
  const f = isLog ? Math.log10 : (v) => v;
  const a = f(low), b = f(high);
  const to = (value) => start + ((f(value) - a) / (b - a || 1)) * (stop - start);
  to.back = (pixel) => {
    const value = a + ((pixel - start) / (stop - start)) * (b - a);
    return isLog ? 10 ** value : value;
  };
  return to;
}

/** A canvas for what is many under an SVG for what is to be sharp; drawn anew when it must. */
class Plot {
  constructor(host, height, margin, draw, label) {
    Object.assign(this, { host, height, margin, drawer: draw });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.svg = make("svg", { role: "img", "aria-label": label });
    host.classList.add("plot");
    fill(host, this.canvas, this.svg);
    Plot.all.add(this);
    if (host.isConnected) this.draw();
    Plot.sizes.observe(host);
  }

  draw() {
    const width = this.host.clientWidth;
    const height = typeof this.height === "function" ? this.height(width) : this.height;
    if (!width) return;
    const sharp = Math.max(window.devicePixelRatio || 1, isPrinting ? 2 : 1);
    Object.assign(this.canvas, { width: width * sharp, height: height * sharp });
    // On paper it is scaled as a whole.
    this.host.style.aspectRatio = `${width} / ${height}`;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    fill(this.svg);
    const paint = this.canvas.getContext("2d");
    paint.setTransform(sharp, 0, 0, sharp, 0, 0);
    const { left, right, top, bottom } = this.margin(width);
    this.box = { left, top, right: width - right, bottom: height - bottom, width, height };
    this.drawer(this, paint, this.box);
  }

  add(tag, attributes, ...children) {
    const made = make(tag, attributes, ...children);
    this.svg.append(made);
    return made;
  }

  /** Ticks and their names below and at the left. */
  axes(x, xTicks, y, yTicks, text = tickText, xText = tickText) {
    const { left, right, top, bottom } = this.box;
    this.add("path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` });
    for (const tick of xTicks) {
      const at = x(tick);
      this.add("path", { class: "frame", d: `M${at} ${bottom}v4` });
      this.add("text", { class: "tick", x: at, y: bottom + 16, "text-anchor": "middle" }, xText(tick));
    }
    for (const tick of yTicks) {
      const at = y(tick);
      this.add("path", { class: "frame", d: `M${left} ${at}h-4` });
      this.add("text", { class: "tick", x: left - 7, y: at + 4, "text-anchor": "end" }, text(tick));
    }
  }

  /** After the paper has changed, or what all plots depend on. */
  static redrawAll() {
    palette.clear();
    for (const plot of Plot.all) {
      if (plot.host.isConnected) plot.draw();
      else {
        Plot.all.delete(plot);
        Plot.sizes.unobserve(plot.host);
      }
    }
  }
}
Plot.all = new Set();
Plot.widths = new WeakMap();
Plot.sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (Plot.widths.get(target) === target.clientWidth) continue;
    Plot.widths.set(target, target.clientWidth);
    for (const plot of Plot.all) if (plot.host === target) plot.draw();
  }
});

function chip(outcome) {
  return make("span", { class: `chip ${outcome.name}` }, outcome.glyph);
}

/** A button that copies a text, or selects it where the browser forbids that. */
function copyButton(text, shown) {
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

/** A text to copy, with its button. */
function copyable(text) {
  const shown = make("pre", {}, text);
  return make("div", { class: "copyable" }, shown, copyButton(text, shown));
}
