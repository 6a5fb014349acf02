"""How often the judge says what one sees who looks at the curves.

    python benchmarks/verdicts.py            judges the labelled traces, prints where the two differ
    python benchmarks/verdicts.py --make     trains them again and redraws their sheets (minutes)

The traces and the labels are in `verdicts/`, see `labelled_traces.py`. The labels were given on
sheets that show neither the judge's verdict nor the neighbours of a trace. A stall is settled as in
a sweep, by what the lower and higher rates of its row did. Half of the set is held out: no
threshold was chosen by it, and none may be.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import labelled_traces
from labelled_traces import Labelled

from stabsweep.evidence import DEFAULTS, Thresholds
from stabsweep.records import VERDICTS, Record, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space
from stabsweep.verdict import judge

HALVES = ("tune", "held_out")

ACTS = {"learned": Verdict.CONVERGED, "failed": Verdict.DIVERGED}
"""The verdict of a neighbour in the row that did so."""


def verdict_of(one: Labelled, thresholds: Thresholds = DEFAULTS) -> tuple[Verdict, str]:
    """What the tool says of a trace within its row, and why."""
    found = judge(one.trace, thresholds)
    factors = {0.1: one.lower, 1.0: None, 10.0: one.higher}
    records = []
    for number, (factor, word) in enumerate(factors.items()):
        point = {"lr": one.lr * factor}
        if word is None:
            records.append(Record(number, point, 0, **found.as_fields()))
        elif word:
            records.append(Record(number, point, 0, ACTS[word], final_loss=0.0))
    space = Space.parse({"lr": {"low": one.lr / 10, "high": one.lr * 10, "scale": "log"}})
    [settled] = [record for record in find_region(space, records).records if record.trial == 1]
    return settled.verdict, settled.reason


def score(labelled: Sequence[Labelled], thresholds: Thresholds = DEFAULTS) -> dict[str, Any]:
    """The confusion of labels and verdicts, the agreement, and each disagreement."""
    confusion: Counter[tuple[str, str]] = Counter()
    same_side, judged, differing = 0, 0, []
    for one in labelled:
        verdict, reason = verdict_of(one, thresholds)
        label = VERDICTS[one.label]
        confusion[one.label, verdict.label] += 1
        # What is not judged has no side: invalid, peak_not_reached.
        sides = [found.is_stable if found.is_judged else None for found in (label, verdict)]
        same_side += sides[0] == sides[1]
        if verdict is not label:
            differing.append(
                {
                    "id": one.id,
                    "setup": one.setup,
                    "lr": one.lr,
                    "label": one.label,
                    "note": one.note,
                    "verdict": verdict.label,
                    "reason": reason,
                }
            )
        judged += 1
    return {
        "traces": judged,
        "same_verdict": sum(n for (a, b), n in confusion.items() if a == b) / judged,
        "same_side": same_side / judged,
        "confusion": [[*pair, count] for pair, count in sorted(confusion.items())],
        "differing": differing,
    }


def show(half: str, found: dict[str, Any]) -> None:
    """Prints the confusion matrix: a row a label, a column a verdict."""
    counts = {(label, verdict): n for label, verdict, n in found["confusion"]}
    used = [v.label for v in Verdict if any(v.label in pair for pair in counts)]
    print(
        f"\n{half}: {found['traces']} traces, same verdict {found['same_verdict']:.1%}, "
        f"same side of stable {found['same_side']:.1%}"
    )
    print(f"{'label / verdict':<17}" + "".join(f"{name[:9]:>10}" for name in used))
    for label in used:
        cells = [counts.get((label, verdict), 0) for verdict in used]
        print(f"{label:<17}" + "".join(f"{n or '.':>10}" for n in cells))
    for one in found["differing"]:
        print(f"  #{one['id']} {one['setup']} lr {one['lr']:g}: label {one['label']}", end="")
        print(f" ({one['note']})" if one["note"] else "", end="")
        print(f", verdict {one['verdict']}: {one['reason']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", action="store_true", help="train the traces again, draw them")
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=list(HALVES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    if args.make:
        labelled_traces.make()
    labelled = labelled_traces.load()
    rows = {half: score([one for one in labelled if one.half == half]) for half in args.halves}
    for half, found in rows.items():
        show(half, found)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "verdicts.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
