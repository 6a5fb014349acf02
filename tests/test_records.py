import json
import math
from dataclasses import fields

import numpy as np
import pytest

from stabsweep.records import CURVES, VERDICTS, Record, Verdict, finite, skipped
from tests.traces import make_trace

FULL = Record(
    trial=7,
    point={"lr": 1e-05, "warmup_steps": 10, "clip_norm": None, "init": "normal(0.02)"},
    seed=3,
    verdict=Verdict.DEGRADED,
    state="pruned",
    reason="Loss – reached 0.1.",
    provisional=True,
    steps=50,
    horizon=100,
    initial_loss=2.3,
    final_loss=-1.25,
    best_loss=-2.0,
    peak_loss=1e300,
    blind_loss=0.1 + 0.2,
    bad_step=4,
    clip_share=1 / 3,
    spike_share=0.01,
    displacement=0.5,
    seconds=1.5,
    trace="traces.npy@4096",
    error="none",
)


def test_a_record_survives_json_exactly():
    text = json.dumps(FULL.as_dict(), allow_nan=False)
    assert Record.from_dict(json.loads(text)) == FULL
    assert Record.from_dict(json.loads(text)).point["lr"] == 1e-05


def test_every_field_is_written():
    assert set(FULL.as_dict()) == {f.name for f in fields(Record)}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_is_not_finite_becomes_null(value):
    record = Record(0, {"lr": 1e-3}, 0, Verdict.DIVERGED, final_loss=value, displacement=value)
    plain = json.loads(json.dumps(record.as_dict(), allow_nan=False))
    assert plain["final_loss"] is None and plain["displacement"] is None


def test_numpy_numbers_become_plain_ones_and_booleans_stay_booleans():
    point = {"lr": np.float64(0.5), "warmup_steps": np.int64(3)}
    record = Record(np.int64(1), point, np.int32(2), Verdict.SPIKY, final_loss=np.float32(0.5))
    plain = json.loads(json.dumps(record.as_dict(), allow_nan=False))
    assert plain["point"] == {"lr": 0.5, "warmup_steps": 3}
    assert (plain["trial"], plain["seed"], plain["final_loss"]) == (1, 2, 0.5)
    assert plain["provisional"] is False


def test_keys_of_a_newer_version_are_dropped_and_missing_ones_take_their_default():
    plain = {"trial": 0, "point": {"lr": 1}, "seed": 0, "verdict": "spiky", "new": 1}
    assert Record.from_dict(plain) == Record(0, {"lr": 1}, 0, Verdict.SPIKY)


@pytest.mark.parametrize("key", ["trial", "point", "seed", "verdict"])
def test_a_required_key_that_is_missing_is_named(key):
    plain = FULL.as_dict()
    del plain[key]
    with pytest.raises(KeyError, match=key):
        Record.from_dict(plain)


def test_an_unknown_verdict_is_refused():
    with pytest.raises(KeyError, match="exploded"):
        Record.from_dict({**FULL.as_dict(), "verdict": "exploded"})


def test_verdicts_are_found_by_their_label_and_no_sentence_is_used_twice():
    assert all(VERDICTS[verdict.label] is verdict for verdict in Verdict)
    assert len({verdict.value for verdict in Verdict}) == len(list(Verdict)) == 11


def test_what_learned_is_stable_and_what_is_stable_is_judged():
    for verdict in Verdict:
        assert verdict.is_judged or not verdict.is_stable
        assert verdict.is_stable or not verdict.is_learned
    assert Verdict.TOO_SLOW.is_stable and not Verdict.TOO_SLOW.is_learned
    assert not Verdict.DEGRADED.is_stable


def test_the_initial_loss_takes_the_place_of_a_blind_loss_that_does_not_exist():
    assert Record(0, {"lr": 1}, 0, Verdict.SPIKY, initial_loss=2.0).blind == 2.0
    assert Record(0, {"lr": 1}, 0, Verdict.SPIKY, initial_loss=2.0, blind_loss=0.0).blind == 0.0
    assert make_trace([1.0, 2.0]).blind == 1.0


def test_a_truncated_trace_is_shorter_in_every_curve_and_the_same_otherwise():
    trace = make_trace(np.arange(10.0), horizon=10, warmup_steps=3)
    short = trace.truncated(4)
    assert short.num_steps == 4 and short.stacked().shape == (len(CURVES), 4)
    assert (short.stacked() == trace.stacked()[:, :4]).all()
    assert (short.horizon, short.warmup_steps) == (10, 3)


def test_finite_is_the_float_or_none():
    assert finite(np.float32(0.5)) == 0.5 and type(finite(np.float32(0.5))) is float
    assert finite(math.nan) is None and finite(-math.inf) is None


def test_what_a_scaler_left_out_is_not_what_was_clipped_to_nothing():
    usual = np.array([1.0, 1.0, 1.0, 0.1, 0.01])
    left_out = np.array([1.0, math.inf, 1.0, 0.0, 0.01])
    clipped_to_nothing = np.array([1.8e19, math.inf, 0.0, 0.0, 0.01])
    curves = np.stack([usual, left_out, clipped_to_nothing], 1)
    assert skipped(curves).tolist() == [False, True, False]
