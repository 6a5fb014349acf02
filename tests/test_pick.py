import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import yaml

from stabsweep.numerals import rate
from stabsweep.pick import Pick, find_pick
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space

RANGE = {"low": 1e-5, "high": 1}
SPACE = Space.parse({"lr": RANGE})
RATES = np.geomspace(1e-5, 1, 21).tolist()


def record(number, lr, verdict="converged", loss: float | None = 1.0, seed=0, **known) -> Record:
    verdict = Verdict[verdict.upper()]
    known = {"blind_loss": 2.0, "initial_loss": 2.3, "horizon": 100, **known}
    point = {"lr": lr, **known.pop("point", {})}
    return Record(
        number, point, seed, verdict, final_loss=loss if verdict.is_stable else None, **known
    )


def sweep(edge=1e-2, num_seeds=2, rates=RATES, best=1.0, **known) -> list[Record]:
    """Records of a row whose loss falls with the rate up to its edge."""
    records = []
    for seed in range(num_seeds):
        for lr in rates:
            held = lr < edge * (1 + 0.1 * seed)
            loss = best + 0.9 * math.log10(edge / lr) / 5 if held else None
            verdict = "converged" if held else "diverged"
            records.append(record(len(records), lr, verdict, loss, seed, **known))
    return records


def pick_of(records, space=SPACE, **known) -> Pick:
    return find_pick(find_region(space, records), **known)


def none_of(records, space=SPACE, **known) -> str:
    pick = pick_of(records, space, **known)
    assert pick.status == "none" and not pick.is_ok and pick.lr is None
    return pick.reason


# ------------------------------------------------------------------------------ a pick


def test_the_pick_has_the_lowest_loss_of_what_lies_a_margin_below_the_safe_edge():
    pick = pick_of(sweep())
    edge = pick.edge
    assert pick.is_ok and edge is not None
    # The loss falls up to the edge, so the pick is the highest rate that the margin allows.
    allowed = [lr for lr in RATES if lr <= edge["safe_lr"] / 10**0.2]
    assert pick.lr <= allowed[-1] and pick.lr == pytest.approx(allowed[-1], rel=0.1)
    assert pick.margin_decades == pytest.approx(math.log10(edge["lr"] / pick.lr))
    assert pick.margin_decades >= 0.2


def test_the_lowest_loss_is_taken_even_far_below_the_edge_and_the_lowest_rate_of_equals():
    records = [
        replace(r, final_loss=0.5 if 1e-4 < r.lr < 1e-3 else 1.0) if r.final_loss else r
        for r in sweep()
    ]
    pick = pick_of(records)
    assert pick.lr == pytest.approx(min(lr for lr in RATES if lr > 1e-4), rel=0.1)
    assert pick.final_loss == 0.5 and pick.blind_loss == 2.0


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_a_larger_margin_keeps_farther_away(margin):
    pick = pick_of(sweep(), margin_decades=margin)
    assert pick.lr <= pick.edge["safe_lr"] / 10**margin
    assert pick.lr <= pick_of(sweep(), margin_decades=margin / 2).lr


def test_one_nan_at_the_end_does_not_make_its_neighbour_the_pick():
    losses = [0.90, 0.88, 0.86, 0.855, 0.85, 0.84, None]
    rates = [10.0**-x for x in (6, 5, 4, 3, 2, 1, 0)]
    records = [
        record(n, lr, "diverged" if loss is None else "converged", loss)
        for n, (lr, loss) in enumerate(zip(rates, losses, strict=True))
    ]
    for margin in (0.0, 0.2):
        pick = pick_of(records, margin_decades=margin)
        assert pick.is_ok and pick.lr < 0.1
        assert pick.edge["low"] < 1.0 and 0.1 <= pick.edge["lr"] <= 1.0


@pytest.mark.parametrize("word", ["spiky", "diverged", "degraded", "collapsed", "too_slow"])
def test_a_cell_with_one_seed_that_is_not_sound_is_never_picked(word):
    records = sweep(edge=10.0, num_seeds=3)
    best = pick_of(records).lr
    cells = [r for r in records if r.lr == max(RATES)]
    assert best == max(RATES)
    bad = replace(cells[1], verdict=Verdict[word.upper()], final_loss=0.0)
    pick = pick_of([bad if r is cells[1] else r for r in records])
    assert pick.is_ok and pick.lr < max(RATES)


def test_no_random_region_yields_an_unsound_pick():
    words = ["converged"] * 6 + ["recovered", "spiky", "too_slow", "diverged", "collapsed"]
    num_ok = 0
    for seed in range(60):
        draw = random.Random(seed)
        records = [
            record(n, lr, draw.choice(words) if lr < 1e-2 else "diverged", draw.random(), s)
            for n, (lr, s) in enumerate((lr, s) for lr in RATES for s in (0, 1))
        ]
        pick = pick_of(records)
        if not pick.is_ok:
            continue
        num_ok += 1
        cells = {lr: [r for r in records if r.lr == lr] for lr in RATES}
        (lr,) = [lr for lr in RATES if pick.lr <= lr < pick.lr * 1.1]
        assert all(r.verdict in (Verdict.CONVERGED, Verdict.RECOVERED) for r in cells[lr])
        assert lr <= pick.edge["safe_lr"] / 10**0.2
    assert num_ok > 10


def test_a_pick_does_not_grow_by_being_written_down():
    for lr in (1.99e-3, 1.234e-3, 2.9e-3):
        pick = pick_of([record(0, lr)])
        assert pick.lr <= lr < pick.lr + 1e-4
    assert pick_of([record(0, 2.9e-3)]).lr == 2.9e-3


def test_an_edge_that_was_not_reached_is_said_and_needs_no_margin():
    pick = pick_of(sweep(edge=10.0))
    assert pick.lr == 1.0 and pick.margin_decades == 0.0
    assert pick.edge["status"] == "above" and pick.edge["lr"] is None
    assert pick.reason.startswith("The edge was not reached: nothing failed up to 1.")
    assert "The edge may lie anywhere above 1: raise space.lr.high." in pick.warnings
    assert "The pick is the highest rate that was tried: raise space.lr.high." in pick.warnings


def test_a_rate_that_could_not_be_judged_is_not_said_to_have_held():
    records = [*sweep(edge=10.0, num_seeds=1), record(99, 50.0, "invalid")]
    pick = pick_of(records)
    assert "nothing failed up to 1." in pick.reason
    assert "The edge may lie anywhere above 1: raise space.lr.high." in pick.warnings
    assert "The pick is the highest rate that was tried: raise space.lr.high." in pick.warnings


def test_a_pick_is_at_most_the_usable_edge():
    # It learns again far above, but only after a cell that lost most of what there is.
    losses = {1e-4: 1.2, 1e-3: 1.0, 1e-2: 1.9, 1e-1: 1.9, 1.0: 1.9}
    pick = pick_of([record(n, lr, loss=loss) for n, (lr, loss) in enumerate(losses.items())])
    assert pick.usable_lr == 1e-3 and pick.lr == 1e-3


def test_of_rates_that_are_about_as_good_one_that_had_all_seeds_is_picked():
    """A search tries most rates with one seed, and of those the luckiest has the lowest loss."""
    full = sweep(num_seeds=3)
    best = pick_of(full)
    assert best.lr is not None and best.final_loss is not None
    lucky = record(99, best.lr * 0.9, loss=best.final_loss - 0.05)
    assert pick_of([*full, lucky]).lr == best.lr
    # What is far better is more than luck.
    lucky = record(99, best.lr * 0.9, loss=best.final_loss - 0.5)
    assert pick_of([*full, lucky]).final_loss == pytest.approx(best.final_loss - 0.5)


def test_the_reason_names_edge_interval_and_evidence():
    pick = pick_of(sweep())
    times, edge = f"{pick.edge['lr'] / pick.lr:.2g}x", f"({rate(pick.edge['lr'])}, 95% interval"
    assert pick.reason.startswith(f"{times} below the edge {edge}")
    held = [r for r in sweep() if r.lr <= pick.lr * 1.1]
    assert pick.reason.endswith(
        f"{len(held)} of {len(held)} trials at or below it in its row held."
    )
    assert pick.evidence == {
        "trials": len(held),
        "stable": len(held),
        "seeds": 2,
        "horizon": 100,
        "trials_total": 42,
    }


def test_the_row_with_the_lowest_loss_gives_the_other_axes():
    space = Space.parse({"lr": RANGE, "warmup_steps": [0, 10], "clip_norm": [1, None]})
    records = []
    for warmup_steps, clip_norm, best in [(0, 1.0, 1.0), (10, None, 0.5), (10, 1.0, 0.8)]:
        point = {"warmup_steps": warmup_steps, "clip_norm": clip_norm}
        for one in sweep(best=best, point=point):
            records.append(replace(one, trial=len(records)))
    pick = pick_of(records, space, fixed={"init": "default", "warmup_steps": 3})
    assert pick.hyperparameters == {"init": "default", "warmup_steps": 10, "clip_norm": None}
    lr = pick.lr
    assert pick.overrides() == [f"lr={lr}", "init=default", "warmup_steps=10", "clip_norm=null"]
    assert pick.flags() == [f"--lr={lr}", "--init=default", "--warmup-steps=10"]


def test_text_that_hydra_would_read_as_a_call_is_quoted_for_it():
    from hydra.core.override_parser.overrides_parser import OverridesParser

    pick = pick_of([record(0, 1.5e-5)], fixed={"init": "normal(0.02)", "schedule": "cosine"})
    assert pick.overrides() == ["lr=1.5e-05", "init='normal(0.02)'", "schedule=cosine"]
    parsed = OverridesParser.create().parse_overrides(pick.overrides())
    assert [override.get_value_string() for override in parsed] == [
        "1.5e-05",
        "'normal(0.02)'",
        "cosine",
    ]
    assert parsed[1].value() == "normal(0.02)"


def test_a_pick_is_plain_values_for_yaml_and_json():
    for pick in (pick_of(sweep()), pick_of(sweep(edge=10.0)), pick_of([])):
        plain = pick.as_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain
        assert yaml.safe_load(yaml.safe_dump(plain)) == plain


# ------------------------------------------------------------------------------ warnings


def warned(records, text, **known) -> bool:
    return any(text in warning for warning in pick_of(records, **known).warnings)


def test_a_pick_far_from_everything_odd_has_no_warning():
    assert pick_of(sweep(num_seeds=2), num_planned=42).warnings == ()


def test_a_sweep_that_was_interrupted_is_a_warning():
    assert warned(sweep()[:30], "Only 30 of 42 trials were run.", num_planned=42)
    assert pick_of([], num_planned=42).warnings == ("Only 0 of 42 trials were run.",)


def test_the_lowest_rate_that_was_tried_is_a_warning():
    records = [replace(r, final_loss=r.lr) if r.final_loss else r for r in sweep()]
    assert warned(records, "the lowest rate that was tried: lower space.lr.low.")


def test_one_seed_is_a_warning():
    assert warned(sweep(num_seeds=1), "One seed only")
    assert not warned(sweep(num_seeds=2), "One seed only")


@pytest.mark.parametrize("clip_share", [0.5, 0.51, 1.0])
def test_a_pick_that_is_clipped_most_of_the_time_is_a_warning(clip_share):
    assert warned(sweep(clip_share=clip_share), "really a clip axis") == (clip_share > 0.5)


@pytest.mark.parametrize(("horizon", "is_short"), [(49, True), (50, False)])
def test_a_short_horizon_is_a_warning(horizon, is_short):
    assert warned(sweep(horizon=horizon), "too short to see slow divergence") == is_short


def test_seeds_that_disagree_just_above_the_pick_are_a_warning():
    records = [
        replace(r, verdict=Verdict.DIVERGED, final_loss=None)
        if r.seed and 1e-3 < r.lr < 1e-2 else r
        for r in sweep()
    ]  # fmt: skip
    pick = pick_of(records, margin_decades=0.0)
    split = min(lr for lr in RATES if lr > 1e-3)
    assert (split <= pick.lr * 4) == any("Seeds disagree" in w for w in pick.warnings)
    assert any("Seeds disagree" in w for w in pick.warnings)


def test_a_failure_below_the_pick_is_a_warning():
    records = [
        replace(r, verdict=Verdict.DIVERGED, final_loss=None) if r.trial == 2 else r
        for r in sweep()
    ]
    assert warned(records, f"A trial failed at {rate(RATES[2])}, below the pick.")
    assert not warned(sweep(), "below the pick")


def test_of_scattered_values_the_one_that_ran_is_picked_and_the_grouping_is_a_warning():
    space = Space.parse({"lr": RANGE, "weight_decay": {"low": 1e-6, "high": 1}})
    draw = random.Random(0)
    records = [
        record(n, 10 ** draw.uniform(-4, -2), loss=draw.random(),
               point={"weight_decay": 10 ** draw.uniform(-6, 0)})
        for n in range(60)
    ]  # fmt: skip
    pick = pick_of(records, space)
    best = next(r for r in records if r.final_loss == pick.final_loss)
    assert pick.hyperparameters == {"weight_decay": best.point["weight_decay"]}
    assert any(w.startswith("weight_decay was scattered") for w in pick.warnings)


# ------------------------------------------------------------------------------ none


def test_without_trials_there_is_no_pick():
    assert none_of([]) == "No trial was finished."


def test_trials_that_all_failed_give_their_error():
    assert none_of([record(0, 0.1, "invalid", state="failed", error="no memory")]) == (
        "No trial ran to a verdict: no memory"
    )


@pytest.mark.parametrize("word", ["invalid", "peak_not_reached"])
def test_trials_that_could_not_be_judged_say_why(word):
    value = f"No trial could be judged. {Verdict[word.upper()].value}"
    assert none_of([record(0, 0.1, word), record(1, 0.2, word)]) == value
    failed = record(0, 0.1, "invalid", state="failed", error="no memory")
    reason = none_of([failed, record(1, 0.1, word, reason="Seen."), record(2, 0.2, word)])
    assert reason == f"{value} The first: Seen."


def test_a_row_in_which_nothing_holds_sends_the_reader_lower():
    records = [record(n, lr, "diverged") for n, lr in enumerate((1e-3, 1e-2))]
    reason = none_of([*records, record(3, 1e-5, "invalid")])
    assert reason == (
        "Nothing is stable: even the lowest rate, 1.0e-3, failed. Go lower: space.lr.low=1.0e-6."
    )


def test_a_row_in_which_nothing_is_learned_sends_the_reader_to_a_longer_horizon():
    records = [record(n, lr, "too_slow", 2.0) for n, lr in enumerate((1e-3, 1e-2))]
    assert "no trial ended clearly below 2, where" in none_of(records)
    assert "horizon=200" in none_of(records)


def test_what_is_too_close_to_the_edge_is_left_open_for_a_longer_run():
    pick = pick_of([record(0, 1e-2, loss=1.0), record(1, 1e-1, "diverged")])
    assert (pick.status, pick.lr, pick.final_loss) == ("open", 1e-2, 1.0) and not pick.is_ok
    assert "too close to the edge" in pick.reason and "1.0e-2" in pick.reason
    assert "space.lr.low" in pick.reason


def test_where_nothing_learned_the_highest_rate_that_the_margin_allows_is_left_open():
    records = sweep(edge=1e-2)
    slow = [
        replace(r, verdict=Verdict.TOO_SLOW, final_loss=2.0) if r.final_loss else r for r in records
    ]
    pick = pick_of(slow)
    assert pick.status == "open" and pick.reason.startswith("Nothing was learned")
    highest = max(lr for lr in RATES if lr <= pick.ceiling_lr)
    assert pick.lr == pytest.approx(highest, rel=0.1) and pick.margin_decades > 0.2
    assert pick.ceiling_lr == pick.edge["safe_lr"] / 10**0.2
    # Without an edge there is no rate of which to say that it is high.
    assert none_of([r for r in slow if r.verdict.is_stable]) == pick.reason


def test_what_learns_beyond_the_usable_edge_is_not_picked():
    cells = [(1e-4, "spiky", 1.0), (1e-3, "converged", 1.9), (1e-2, "converged", 1.3)]
    records = [record(n, *cell) for n, cell in enumerate(cells)]
    assert find_region(SPACE, records).rows[0].usable_lr == 1e-4
    none_of(records)


def test_what_learns_in_no_row_with_every_seed_is_none():
    records = sweep(num_seeds=2)
    records = [replace(r, verdict=Verdict.SPIKY) if r.final_loss and r.seed else r for r in records]
    assert none_of(records).startswith("Nothing is sound: at no rate did every seed learn")


def test_every_none_can_be_printed_and_written():
    for records in ([], [record(0, 0.1, "diverged")], [record(0, 0.1, "too_slow", 2.0)]):
        pick = pick_of(records)
        assert pick.reason.count("\n") == 0 and json.dumps(pick.as_dict(), allow_nan=False)
