// The curves of trials: unpacked when they are asked for, drawn with what is not finite marked.

const NOT_FINITE = 0, NOT_RECORDED = 1, ZERO = 2, LOWEST = 3;
const CURVE_LABELS = {
  loss: "loss", grad_norm: "gradient norm", update_ratio: "update / weights", clip_coef: "clip coefficient",
};
const blocks = new Map();

/** The unpacked block of a trial: {ends, linear, codes, count}. */
async function blockOf(number) {
  if (!blocks.has(number)) blocks.set(number, unpack(data.curves.blocks[number]));
  return blocks.get(number);
}

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { names, numValues } = data.curves;
  const count = bytes.length / (names.length * (17 + numValues));
  const curves = count * names.length;
  const ends = new Float64Array(bytes.buffer.slice(0, 16 * curves));
  const linear = bytes.subarray(16 * curves, 17 * curves);
  const codes = bytes.slice(17 * curves);
  for (let at = 0; at < codes.length; at++) if (at % numValues) codes[at] += codes[at - 1];
  return { ends, linear, codes };
}

/** The curves of a trial by name: {steps, values}; NaN is not finite, and what was not run is left out. */
async function curvesOf(at) {
  const { names, perBlock, numValues, blocks: packed } = data.curves;
  if (!packed.length) return null;
  const { ends, linear, codes } = await blockOf(Math.floor(at / perBlock));
  const found = {};
  names.forEach((name, which) => {
    const curve = (at % perBlock) * names.length + which;
    const [low, high] = [ends[2 * curve], ends[2 * curve + 1]];
    const steps = [], values = [];
    for (let k = 0; k < numValues; k++) {
      const code = codes[curve * numValues + k];
      if (code === NOT_RECORDED) continue;
      const place = low + ((code - LOWEST) / (255 - LOWEST)) * (high - low);
      steps.push(numValues === data.horizon ? k : ((k + 0.5) / numValues) * data.horizon);
      values.push(code === NOT_FINITE ? NaN : code === ZERO ? 0 : linear[curve] ? place : 10 ** place);
    }
    found[name] = { steps, values };
  });
  return found.loss.steps.length ? found : null;
}

function endsOf(lists) {
  let low = Infinity, high = -Infinity, least = Infinity;
  for (const list of lists)
    for (const value of list)
      if (Number.isFinite(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
        if (value > 0) least = Math.min(least, value);
      }
  return { low, high, least };
}

/** Lines over the steps of a trial or of several: [{steps, values, colour}], with level lines. */
function curvePlot(host, name, lines, levels = []) {
  const { low, high, least } = endsOf(lines.map((line) => line.values));
  const isLog = low >= 0 && high > 20 * (low > 0 ? low : least);
  new Plot(
    host,
    (width) => (name === "loss" ? Math.min(Math.max(width * 0.42, 150), 210) : 92),
    () => ({ left: 52, right: 16, top: 20, bottom: 22 }),
    (plot, _, box) => {
      const x = scaleOf(0, Math.max(data.horizon - 1, 1), box.left, box.right, false);
      let [from, to] = isLog ? [low > 0 ? low : least, high] : [low, high];
      if (!Number.isFinite(from)) [from, to] = [0, 1];
      if (from === to) [from, to] = [from - Math.abs(from || 1) * 0.5, to + Math.abs(to || 1) * 0.5];
      // What runs away must not flatten the rest, but it must be seen to leave.
      const most = name === "loss" && levels.length ? Math.max(...levels.map((level) => level.at)) : null;
      if (most !== null && !isLog && to > 4 * Math.abs(most) + from) to = 4 * Math.abs(most) + from;
      const pad = isLog ? (to / from) ** 0.05 : 0.05 * (to - from);
      [from, to] = isLog ? [from / pad, to * pad] : [from - pad, to + pad];
      const y = scaleOf(from, to, box.bottom, box.top, isLog);
      const ticks = isLog ? logTicks(from, to, 4) : linearTicks(from, to, 4);
      plot.axes(x, linearTicks(0, data.horizon, 4), y, ticks, tickText, (v) => v.toLocaleString("en"));
      plot.add("text", { class: "name", x: box.left - 44, y: 12 }, CURVE_LABELS[name]);
      drawLevels(plot, levels.filter((level) => level.at > from && level.at < to), y, box.right, "end");
      const clamp = (value) => Math.min(Math.max(y(value), box.top), box.bottom);
      for (const line of lines) {
        let path = "", pen = "M";
        const broken = [];
        line.steps.forEach((step, k) => {
          const value = line.values[k];
          if (!Number.isFinite(value)) {
            broken.push(step);
            pen = "M";
          } else if (!isLog || value > 0) {
            path += `${pen}${x(step).toFixed(1)} ${clamp(value).toFixed(1)}`;
            pen = "L";
          }
        });
        plot.add("path", { class: "curve", d: path, stroke: line.colour });
        if (broken.length)
          plot.add("path", {
            class: "broken",
            d: broken.map((step) => `M${x(step).toFixed(1)} ${box.top}v6`).join(""),
          }, make("title", {}, `not finite from step ${Math.round(broken[0])}`));
      }
      plot.svg.setAttribute("aria-label", `${CURVE_LABELS[name]} over ${data.horizon} steps`);
    },
    CURVE_LABELS[name],
  );
}

/** Level lines with their names; those that would lie over each other share a name. */
function drawLevels(plot, levels, y, x, anchor) {
  const { left, right } = plot.box;
  const names = [];
  for (const { at, text } of levels) {
    plot.add("path", { class: "level", d: `M${left} ${y(at)}H${right}` });
    const near = names.find((name) => Math.abs(name.y - y(at)) < 13);
    if (near) near.text += `, ${text}`;
    else names.push({ y: y(at), text });
  }
  for (const name of names)
    plot.add("text", { class: "tick", x, y: name.y - 4, "text-anchor": anchor }, name.text);
}

function lossLevels() {
  const { blind, initial } = data.losses;
  return [
    ...(blind === null ? [] : [{ at: blind, text: "knows nothing" }]),
    ...(initial === null ? [] : [{ at: initial, text: "untrained" }]),
  ];
}

/** The strongest colour in which an outcome's line can be seen on the paper. */
function lineColour(outcome) {
  if (outcome.isHatched) return css("--quiet");
  const faint = { too_slow: "#8A8A8A", spiky: isDark() ? "#F0E442" : "#B5A800" };
  return faint[outcome.name] ?? colourOf(outcome);
}
