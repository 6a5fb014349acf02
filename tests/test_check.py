import json

import pytest

from stabsweep.check import FACTORS, check, judged
from stabsweep.errors import BadInput
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.result import load
from stabsweep.space import Space

LR = 3e-4
VECTOR = {
    "model": "vector",
    "task": "quadratic",
    "optimizer": {"name": "sgd", "momentum": 0.0},
    "horizon": 60,
    "device": "cpu",
}


def found(*cells, loss=(1.0, 0.9, 0.95, 1.2), **known):
    """The check of three seeds; a cell is a verdict for all seeds or a list of them."""
    records = []
    for place, cell in enumerate(cells):
        for seed, word in enumerate([cell] * 3 if isinstance(cell, str) else cell):
            verdict = Verdict[word.upper()]
            end = loss[place] if verdict.is_stable else None
            fields = {"final_loss": end, "blind_loss": 2.0, "initial_loss": 2.3, "horizon": 100}
            fields |= {"provisional": verdict is Verdict.TOO_SLOW, "reason": f"It {word}.", **known}
            point = {"lr": LR * FACTORS[place]}
            records.append(Record(len(records), point, seed, verdict, **fields))
    space = Space.parse({"lr": [LR * factor for factor in FACTORS]})
    return judged(LR, find_region(space, records), "adamw on mlp")


OK, NO, SLOW = "converged", "diverged", "too_slow"


@pytest.mark.parametrize(
    ("cells", "status", "code", "reason", "move"),
    [
        ((OK,) * 4, "safe", 0, "It holds up to 4x, the most", "Stay, or go up: 1.5x ends lower"),
        ((OK, OK, OK, NO), "safe", 0, "up to 2x and fails at 4x", "1.5x ends lower"),
        ((OK, OK, NO, NO), "safe", 0, "up to 1.5x and fails at 2x", "check lr=4.5e-4"),
        ((OK, OK, [OK, NO, NO], NO), "safe", 0, "up to 1.5x and fails at 4x", "Stay"),
        ((OK, OK, OK, [OK, NO, NO]), "safe", 0, "up to 2x; at 4x 1 of 3 held", "Stay"),
        ((OK, "spiky", NO, NO), "safe", 0, "up to 1.5x and fails at 2x", "Stay"),
        ((SLOW, OK, OK, OK), "safe", 0, "At 1x 3 of 3 learned nothing", "1.5x ends lower"),
        ((OK, NO, NO, NO), "not safe", 1, "holds at 1x and fails at 1.5x. It div", "lr=1.5e-4."),
        ((NO,) * 4, "not safe", 1, "All 3 seeds failed at 1x. It diverged.", "lr=7.5e-5."),
        (([OK, OK, NO], NO, NO, NO), "not safe", 1, "2 of 3 held at 1x and none", "lr=7.5e-5."),
        ((OK, [OK, OK, NO], NO, NO), "undecided", 3, "disagree at 1.5x: 2 of 3", "seeds=8"),
        (([OK, OK, NO], OK, OK, NO), "undecided", 3, "disagree at 1x: 2 of 3", "lr=7.5e-5"),
        ((SLOW,) * 4, "undecided", 3, "too slow: nothing was learned", "go up: check lr=1.2e-3"),
        ((SLOW, SLOW, SLOW, NO), "undecided", 3, "too slow: nothing", "horizon"),
        (("peak_not_reached",) * 4, "undecided", 3, "Not every trial could be", "horizon"),
        (([OK, OK, "invalid"], OK, OK, OK), "undecided", 3, "The first: It invalid.", "input"),
        ((OK,), "undecided", 3, "Not every trial could be judged", "horizon"),
        ((), "undecided", 3, "No trial was finished.", "again"),
    ],
)
def test_what_the_trials_say(cells, status, code, reason, move):
    answer = found(*cells)
    assert (answer.status, answer.exit_code) == (status, code)
    assert reason in answer.reason and move in answer.move
    text = " ".join(answer.summary().split())
    assert text.startswith(f"adamw on mlp: lr=3.0e-4 is {status}") and answer.move in text
    assert max(map(len, answer.summary().splitlines())) <= 80
    plain = json.loads(json.dumps(answer.as_dict(), allow_nan=False))
    assert plain["status"] == status and len(plain["steps"]) == len(cells)


def test_the_numbers_are_those_of_the_cells():
    answer = found(OK, OK, [OK, NO, NO], NO)
    assert [step.factor for step in answer.steps] == list(FACTORS)
    assert [step.held for step in answer.steps] == [3, 3, 1, 0]
    assert answer.steps[0].p_low == pytest.approx(0.46, abs=0.01) and answer.steps[0].p_high == 1
    assert answer.steps[1].loss == pytest.approx(0.9) and answer.steps[2].loss is None
    assert answer.edge.status == "found" and "x this rate (95% interval" in answer.summary()


def test_a_rate_that_ends_lowest_stays():
    assert found(OK, OK, OK, NO, loss=(0.8, 0.9, 0.95, 2)).move.startswith("Stay: no rate up to")


def test_one_seed_is_said_as_one():
    assert found([NO], [NO], [NO], [NO]).reason.startswith("The one seed failed at 1x")


def test_a_known_edge_is_found_by_one_sweep_of_four_rates(tmp_path):
    answer = check(0.8, {**VECTOR, "sampler_seed": 0}, tmp_path, "off")
    assert answer.status == "safe" and [s.held for s in answer.steps] == [3, 3, 3, 0]
    result = load(tmp_path)
    assert len(result.region.records) == 12 and not result.proofs and result.theory is None
    assert result.config["num_planned"] == 12
    assert answer.as_dict()["folder"] == str(tmp_path)


def test_seeds_may_be_listed_and_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = check(3.0, {**VECTOR, "seeds": [4, 7]}, watcher="off")
    assert answer.status == "not safe" and answer.steps[0].trials == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan"), float("inf"), 1e38])
def test_a_rate_that_is_none_is_bad_input(lr):
    with pytest.raises(BadInput, match="lr"):
        check(lr, VECTOR, watcher="off")
