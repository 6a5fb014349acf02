// Beside the map: a cell with its trials, a trial with its verdict, its curves, how to run it again.

const MOST_LINES = 40;

class Detail {
  constructor(host, onOpen) {
    this.host = host;
    this.onOpen = onOpen;
    this.turn = 0;
  }

  /** Nothing is looked at. */
  empty() {
    state.trial = null;
    this.turn++;
    const hint = numTrials
      ? "Choose a cell of the map or a trial of the list: its curves, its verdict with the evidence, and the command that runs it again appear here."
      : "No trial has ended, so there is nothing to look at yet.";
    fill(this.host, make("p", { class: "quiet" }, hint));
  }

  /** A cell: all of its losses, and a button for each of its trials. */
  async cell(found) {
    state.trial = null;
    const turn = ++this.turn;
    const { group, cell } = found;
    const plot = make("div");
    const body = [
      make("h3", {}, `${rate(cell.lr, 3)}${group.label ? ` · ${groupText(group)}` : ""}`),
      make("p", { "data-role": "sentence" }, cellText(group, cell)),
      plot,
      this.list(cell.trials),
    ];
    const shown = cell.trials.slice(0, MOST_LINES);
    const curves = await Promise.all(shown.map(curvesOf));
    if (turn !== this.turn) return;
    fill(this.host, ...body);
    this.lines(plot, shown, curves);
    if (shown.length < cell.trials.length)
      plot.after(make("p", { class: "quiet" }, `The first ${MOST_LINES} of ${cell.trials.length} curves.`));
  }

  /** A trial: verdict, evidence, setting, curves, command. */
  async trial(at) {
    state.trial = at;
    const turn = ++this.turn;
    const curves = await curvesOf(at);
    if (turn !== this.turn) return;
    const outcome = outcomes[trials.outcome[at]];
    const number = trials.number[at];
    const plots = curves ? this.plotted(curves) : [];
    const loss = `Final loss ${lossText(trials.loss[at])} after ${plural(trials.steps[at], "step")} of ${data.horizon.toLocaleString("en")}.`;
    fill(
      this.host,
      make("h3", {}, chip(outcome), ` Trial ${number} `, make("a", { href: `#trial=${number}`, class: "link" }, "link")),
      make("p", { "data-role": "sentence" }, `${verdictOf(at)} ${settingOf(at)}`),
      make("p", { class: "quiet" }, loss),
      ...plots.map(([, host]) => host),
      curves ? this.drawnOf() : null,
      curves ? null : make("p", { class: "quiet" }, "Its curves were not kept."),
      data.replay ? make("p", { class: "quiet" }, "Run it again, with the gradient norms of its layers:") : null,
      data.replay ? copyable(data.replay.join(number)) : null,
      make("p", { class: "quiet" }, "Trials at this rate in this row:"),
      this.list(members[trials.row[at]][trials.cell[at]]),
    );
    for (const [name, host] of plots) {
      const line = { ...curves[name], colour: lineColour(outcome) };
      curvePlot(host, name, [line], name === "loss" ? lossLevels() : []);
    }
  }

  /** That a point stands for several steps, where it does. */
  drawnOf() {
    const steps = Math.round((2 * data.horizon) / data.curves.numValues);
    if (data.horizon === data.curves.numValues) return null;
    return make("p", { class: "quiet" }, `Drawn: the least and the greatest value of every ${steps} steps.`);
  }

  plotted(curves) {
    const isClipped = curves.clip_coef.values.some((value) => value < 0.995);
    return data.curves.names
      .filter((name) => name !== "clip_coef" || isClipped)
      .map((name) => [name, make("div", { "data-curve": name })]);
  }

  lines(host, list, curves) {
    const lines = list
      .map((at, k) => curves[k] && { ...curves[k].loss, colour: lineColour(outcomes[trials.outcome[at]]) })
      .filter(Boolean);
    if (lines.length) curvePlot(host, "loss", lines, lossLevels());
  }

  list(list) {
    return make(
      "ul",
      { class: "chips" },
      ...list.map((at) =>
        make("li", {},
          make("button", {
            type: "button", "aria-pressed": String(at === state.trial), onclick: () => this.onOpen(at),
          }, chip(outcomes[trials.outcome[at]]), ` ${trials.number[at]} · seed ${trials.seed[at]} · ${lossText(trials.loss[at])}`),
        ),
      ),
    );
  }
}
