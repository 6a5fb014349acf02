import math
import re
from dataclasses import replace

import numpy as np

from stabsweep.advice import find_advice
from stabsweep.pick import Pick, find_pick
from stabsweep.proof import CONSTANT, Proof
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space

RATES = np.geomspace(1e-5, 1, 31).tolist()
FIXED = {"optimizer": "adamw", "warmup_steps": 0, "clip_norm": None}


def sweep(edges, axis="warmup_steps", best=1e-3, at=5, horizon=100, edge_of_all=None, **fields):
    """A region whose rows have those edges; the loss is lowest at `best`; failures come at `at`."""
    given = {"lr": {"low": 1e-5, "high": 1.0}}
    space = Space.parse({**given, axis: list(edges)} if edges else given)
    records = []
    for value, edge in (edges or {None: edge_of_all}).items():
        for lr in RATES:
            for seed in (0, 1):
                held = lr < edge
                verdict = Verdict.CONVERGED if held else Verdict.DIVERGED
                end = 1 + 0.1 * abs(math.log10(lr / best)) if held else None
                point = {"lr": lr, **({axis: value} if edges else {})}
                known = {"final_loss": end, "blind_loss": 3.0, "initial_loss": 3.0}
                known |= {"horizon": horizon, "steps": horizon if held else at}
                known |= {"bad_step": None if held else at, **fields}
                records.append(Record(len(records), point, seed, verdict, **known))
    return find_region(space, records)


def advice(region, pick=None, **fixed):
    pick = pick or find_pick(region, {"optimizer": "adamw"})
    return find_advice(region, pick, {**FIXED, **fixed})


def starting(region, word, **known):
    return [text for text in advice(region, **known) if text.startswith(word)]


def test_whether_warmup_moves_the_edge():
    (text,) = starting(sweep({0: 0.012, 25: 0.05, 50: 0.2}), "Warmup")
    assert text.startswith("Warmup moves the edge: 1.2e-2 at 0 steps, 0.18 at 50 steps.")
    (text,) = starting(sweep({0: 0.1, 50: 0.1}), "Warmup")
    assert text.startswith("Warmup does not clearly move the edge: ") and "overlap" in text
    (text,) = starting(sweep({0: 0.01, 50: 2.0}), "Warmup")
    assert text.endswith("above 1 at 50 steps.")
    assert not starting(sweep({0: 2.0, 50: 2.0}), "Warmup")
    assert not starting(sweep({0: 0.1}), "Warmup")


def test_whether_a_clipper_moves_the_edge():
    # Names have no order: the lowest edge is set against the highest, wherever they stand.
    edges = {"zclip": 0.02, "agc": 0.9, "norm": 0.03}
    (text,) = starting(sweep(edges, "clipper"), "Clipping")
    assert re.fullmatch(r"Clipping moves the edge: \S+ with zclip, \S+ with agc\.", text)
    assert not starting(sweep({"zclip": 0.02, "norm": 0.02}, "clipper"), "Clipping")
    (text,) = starting(sweep({0.01: 0.9, 0.1: 0.02}, "clip_factor"), "Clipping")
    assert re.fullmatch(r"Clipping moves the edge: \S+ at 0.01, \S+ at 0.1\.", text)


def test_whether_clipping_moves_the_edge():
    (text,) = starting(sweep({1.0: 0.2, None: 0.012}, "clip_norm"), "Clipping")
    assert text == "Clipping moves the edge: 0.18 at 1, 1.2e-2 without."


def test_only_rows_that_differ_in_nothing_else_are_compared():
    space = Space.parse(
        {"lr": RATES, "clip_norm": [1.0, None], "warmup_steps": [0, 50]},
    )
    parts = {1.0: sweep({0: 0.01, 50: 0.2}), None: sweep({0: 0.01, 50: 0.01})}
    records = [
        replace(r, trial=n, point={**r.point, "clip_norm": clip})
        for n, (clip, r) in enumerate((c, r) for c, p in parts.items() for r in p.records)
    ]
    region = find_region(space, records)
    for clip, says in ((1.0, "moves"), (None, "does not clearly move")):
        pick = Pick("ok", "It is.", 1e-3, {"clip_norm": clip, "warmup_steps": 50})
        (text,) = starting(region, "Warmup", pick=pick)
        assert text.startswith(f"Warmup {says} the edge")


def test_what_to_try_first_depends_on_when_runs_fail():
    def thin(at=5, **fixed):
        region = sweep({}, edge_of_all=0.01, best=0.01, at=at)
        pick = find_pick(region, {"optimizer": "adamw"}, margin_decades=0.0)
        (text,) = starting(region, "The margin is thin (1.8x).", pick=pick, **fixed)
        return text

    assert "Try first warmup_steps=10, then clip_norm=1 (" in thin()
    assert thin().endswith("(runs diverged at step 5 of 100 in the median).")
    assert "Try first clip_norm=1, then warmup_steps=10 (" in thin(at=60)
    assert "Try first clip_norm=1 (" in thin(warmup_steps=20)
    assert "Warmup and clipping are tried already" in thin(warmup_steps=20, clip_norm=1.0)
    assert "Try first warmup_steps=10 (" in thin(clipper="agc")
    assert "Warmup and clipping are tried already" in thin(warmup_steps=20, clipper="zclip")
    assert not starting(sweep({}, edge_of_all=0.5), "The margin")


def test_no_pick_for_instability_is_told_what_to_try_and_one_for_slowness_is_not():
    (text,) = advice(sweep({}, edge_of_all=1e-9))
    assert text.startswith("Training is unstable. Try first warmup_steps=10, then clip_norm=1")
    slow = sweep({}, edge_of_all=10)
    records = [replace(r, verdict=Verdict.TOO_SLOW, provisional=True) for r in slow.records]
    assert advice(find_region(slow.space, records)) == []
    assert advice(find_region(slow.space, [])) == []


def test_the_pick_is_compared_with_the_usual_constant():
    region = sweep({}, edge_of_all=0.5, best=0.02)
    (text,) = starting(region, "The usual constant, 1.0e-3, ends at 1.")
    assert text.endswith("; the best of the sweep at 1.00 at 2.2e-2.")
    (text,) = starting(sweep({}, edge_of_all=5e-4, best=1e-4), "The usual constant")
    assert text == "The usual constant, 1.0e-3, fails with 2 of 2 seeds."
    (text,) = starting(sweep({}, edge_of_all=0.5, best=1e-3), "The pick is the usual constant")
    assert text.endswith(", 1.0e-3.")
    pick = find_pick(region, {"optimizer": "lion"})
    assert not starting(region, "The usual", pick=pick)
    pick = find_pick(region, {"optimizer": "sgd"})
    assert starting(region, "The usual constant, 1.0e-2, ends at", pick=pick)


def test_a_constant_beside_the_swept_rates_is_spoken_of_if_it_was_run_or_lies_too_high():
    region = sweep({}, edge_of_all=0.5, best=0.02)
    far = find_region(region.space, [r for r in region.records if r.lr > 0.003])
    assert not starting(far, "The usual")
    pick = find_pick(far, {"optimizer": "adamw"})
    ran = [
        Proof(CONSTANT, replace(far.records[0], point={"lr": 1e-3}, final_loss=loss))
        for loss in (1.5, 1.7)
    ]
    said = find_advice(far, pick, {}, ran)
    assert (
        "The usual constant, 1.0e-3, ends at 1.60; the best of the sweep at 1.00 at 2.2e-2." in said
    )
    low = sweep({}, edge_of_all=2e-3, best=1e-4)
    low = find_region(low.space, [r for r in low.records if not 5e-4 < r.lr < 2e-3])
    (text,) = starting(low, "The usual constant, 1.0e-3, lies above")
    assert text.endswith("where the margin ends.")
