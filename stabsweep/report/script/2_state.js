// What is shown and what is looked at: filters, groups of rows, the cell and the trial in focus.

const outcomes = data.outcomes;
const seeds = [...new Set(trials.seed)].sort((a, b) => a - b);
const axes = data.axes;
data.rows.forEach((row) => {
  const parts = row.label.split(" · ");
  row.parts = parts.length === axes.length ? parts : null;
});
const hasParts = axes.length > 0 && data.rows.every((row) => row.parts);
// Trials of each cell, by row and place.
const members = data.rows.map((row) => row.cells.map(() => []));
for (let at = 0; at < numTrials; at++) members[trials.row[at]][trials.cell[at]].push(at);

const state = {
  hidden: new Set(), // outcomes that are switched off
  seed: null,
  parts: axes.map(() => null), // the value that each axis is held at
  groupBy: null, // the axis that rows are drawn by; null: every row by itself
  colour: "loss",
  focus: null, // {group, cell}: where the keyboard or the pointer is
  cell: null, // {group, cell}: whose trials are listed
  trial: null, // place of the trial that is opened
};

function isShown(at) {
  return (
    !state.hidden.has(trials.outcome[at]) &&
    (state.seed === null || trials.seed[at] === state.seed) &&
    isRowShown(trials.row[at])
  );
}

function isRowShown(row) {
  return state.parts.every((part, axis) => part === null || data.rows[row].parts[axis] === part);
}

/** Rows as they are drawn, from the bottom: {label, rows, cells: [{lr, low, high, trials}]}. */
function groups() {
  const found = new Map();
  data.rows.forEach((row, at) => {
    if (!isRowShown(at)) return;
    const key = state.groupBy === null ? at : row.parts[state.groupBy];
    const label = state.groupBy === null ? row.label : key;
    if (!found.has(key)) found.set(key, { label, rows: [] });
    found.get(key).rows.push(at);
  });
  const list = [...found.values()];
  for (const group of list) {
    const cells = new Map();
    for (const row of group.rows)
      data.rows[row].cells.forEach(([lr, low, high], place) => {
        if (!cells.has(lr)) cells.set(lr, { lr, low, high, trials: [] });
        const cell = cells.get(lr);
        // Cells of rows that are taken together must not lie over each other.
        cell.low = Math.max(cell.low, low);
        cell.high = Math.min(cell.high, high);
        cell.trials.push(...members[row][place].filter(isShown));
      });
    group.cells = [...cells.values()].sort((a, b) => a.lr - b.lr);
    if (group.rows.length > 1) shareOut(group.cells);
    // An edge is known of a row; of rows taken together it is not.
    group.row = group.rows.length === 1 ? group.rows[0] : null;
  }
  return list;
}

/** Ends half way between neighbours, for rates that several rows bring along. */
function shareOut(cells) {
  for (let at = 1; at < cells.length; at++) {
    const middle = Math.sqrt(cells[at - 1].lr * cells[at].lr);
    if (cells[at - 1].high > middle) cells[at - 1].high = middle;
    if (cells[at].low < middle) cells[at].low = middle;
  }
}

/** Outcome -> trials, in the order of the outcomes, without empty ones. */
function byOutcome(list) {
  if (list.length === 1) return [[outcomes[trials.outcome[list[0]]], list]];
  const found = outcomes.map(() => []);
  for (const at of list) found[trials.outcome[at]].push(at);
  return found.map((some, index) => [outcomes[index], some]).filter(([, some]) => some.length);
}

function meanLoss(list) {
  const known = list.map((at) => trials.loss[at]).filter((loss) => loss !== null);
  return known.length ? known.reduce((sum, loss) => sum + loss, 0) / known.length : null;
}

/** `Learning rate 3.0e-2, 50 warmup steps, seed 2.` */
function settingOf(at) {
  const where = words[trials.at[at]];
  return `Learning rate ${rate(trials.lr[at], 3)}${where ? `, ${where}` : ""}, seed ${trials.seed[at]}.`;
}

/** The verdict on a trial with its evidence: `Diverged: not finite from step 41.` */
function verdictOf(at) {
  const { label, sentence } = outcomes[trials.outcome[at]];
  const why = words[trials.why[at]] || sentence;
  const end = /[.!?]$/.test(why) ? "" : ".";
  return `${label[0].toUpperCase()}${label.slice(1)}: ${why}${end}`;
}

/** What a group of rows has in common: `50 warmup steps`. */
function groupText(group) {
  if (!group.label) return "";
  if (group.row === null) return `${axes[state.groupBy].replaceAll("_", " ")} ${group.label}`;
  const said = new Set(members[group.row].flat().map((at) => words[trials.at[at]]));
  return said.size === 1 ? [...said][0] : `${data.rowAxis} ${group.label}`;
}

/** What stands in a cell, in a sentence. */
function cellText(group, cell) {
  const where = group.label ? ` at ${groupText(group)}` : "";
  if (!cell.trials.length) return `${rate(cell.lr, 3)}${where}: no trial is shown.`;
  const counts = byOutcome(cell.trials).map(([outcome, some]) => `${some.length} ${outcome.label}`);
  const loss = meanLoss(cell.trials.filter((at) => outcomes[trials.outcome[at]].onScale));
  const mean = loss === null ? "" : `; final loss ${lossText(loss)}`;
  return `${rate(cell.lr, 3)}${where}: ${plural(cell.trials.length, "trial")}, ${counts.join(", ")}${mean}.`;
}
