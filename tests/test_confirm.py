from __future__ import annotations

import pytest
import yaml

import stabsweep
from stabsweep.confirm import LONGER, NUM_SEEDS, confirm, stress
from stabsweep.pick import Pick
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM
from stabsweep.records import Verdict
from stabsweep.store import read_proofs
from tests.test_plan import GIVEN

MLP = {"name": "mlp", "width": 16, "depth": 2}
SPACE = {"lr": {"low": 1e-3, "high": 100.0}, "warmup_steps": [0, 5]}


def plan_of(**given):
    common = {"model": MLP, "optimizer": "sgd", "space": SPACE, "horizon": 40, "seeds": [2, 5]}
    return Plan.make({**GIVEN, **common, **given})


def pick_at(lr):
    return Pick("ok", "", lr, {"warmup_steps": 5, "optimizer": "sgd"})


def test_a_pick_is_trained_longer_with_seeds_that_the_sweep_has_not_seen():
    said = []
    proofs = confirm(plan_of(), pick_at(0.02), said.append)
    assert [proof.record.seed for proof in proofs] == [6, 7, 8]
    assert {proof.record.horizon for proof in proofs} == {LONGER * 40}
    assert {proof.record.steps for proof in proofs} == {LONGER * 40}
    assert all(p.record.point == {"lr": 0.02, "warmup_steps": 5} for p in proofs)
    assert all(proof.held for proof in proofs)
    assert said == ["confirm: 2.0e-2 held for 3 of 3 unseen seeds over 120 steps"]


def test_a_rate_that_fails_is_tried_lower_until_it_holds():
    said = []
    proofs = confirm(plan_of(), pick_at(3.0), said.append)
    rates = list(dict.fromkeys(proof.record.lr for proof in proofs))
    assert rates[0] == 3.0 and 2 <= len(rates) <= 5
    assert rates == sorted(rates, reverse=True)
    assert not all(p.held for p in proofs[:NUM_SEEDS]) and len(said) == len(rates)


def test_stress_changes_one_thing_at_a_time():
    proofs = stress(plan_of(), pick_at(0.05), lambda note: None)
    assert list(dict.fromkeys(proof.test for proof in proofs)) == [
        "half the batch size",
        "double the batch size",
        "double the width",
        "double the depth",
        "another order of the batches",
    ]
    assert len(proofs) == 10
    assert {proof.record.horizon for proof in proofs} == {40}
    # Another order has the same weights: the first loss differs by its batch alone.
    ordered = [p.record for p in proofs if p.test == "another order of the batches"]
    assert [record.seed for record in ordered] == [2, 5]


def test_stress_leaves_what_an_axis_sweeps():
    swept = {**SPACE, "width": [8, 16], "batch_size": [16, 32]}
    picked = Pick("ok", "", 0.05, {"warmup_steps": 5, "width": 8, "batch_size": 16})
    proofs = stress(plan_of(space=swept), picked, lambda note: None)
    assert {proof.test for proof in proofs} == {"double the depth", "another order of the batches"}


SWEEP = {
    "model": MLP,
    "task": "digits",
    "space": {"lr": {"low": 1e-3, "high": 100.0}},
    "optimizer": "sgd",
    "horizon": 40,
    "num_trials": 20,
    "seeds": 2,
    "device": "cpu",
    "watcher": "off",
}


def test_a_sweep_proves_its_pick_and_keeps_the_proofs(tmp_path):
    swept = stabsweep.sweep(**SWEEP, folder=tmp_path)
    assert swept.pick.is_ok and swept.pick.proofs["tests"] == 13
    assert f"Survives {swept.pick.proofs['held']} of 13 runs" in swept.summary()
    assert len(read_proofs(tmp_path)) >= 13
    stored = yaml.safe_load((tmp_path / "pick.yaml").read_text())
    assert stored["proofs"]["tests"] == 13
    assert stabsweep.load(tmp_path).pick == swept.pick
    # Nothing is run again.
    again = stabsweep.resume(tmp_path, watcher="off")
    assert again.pick == swept.pick and again.proofs == swept.proofs


@pytest.mark.parametrize(
    ("given", "tests"),
    [
        ({"confirm": False, "stress": False}, 0),
        ({"confirm": True, "stress": False}, 3),
        ({"confirm": True, "model": lambda: __import__("torch").nn.Linear(64, 10)}, 3),
    ],
)
def test_what_is_not_asked_for_is_not_run(given, tests):
    swept = stabsweep.sweep(**{**SWEEP, **given})
    assert len(swept.proofs) == tests
    assert swept.pick.proofs.get("tests", 0) == tests


def test_a_sweep_without_a_pick_has_nothing_to_prove():
    swept = stabsweep.sweep(**{**SWEEP, "space": {"lr": [1e4, 1e5, 1e6, 1e7, 1e8]}})
    assert not swept.pick.is_ok and swept.proofs == ()


def test_proofs_are_judged_like_trials():
    swept = stabsweep.sweep(**SWEEP)
    assert all(isinstance(proof.record.verdict, Verdict) for proof in swept.proofs)
    assert [p.test for p in swept.proofs[:3]] == [CONFIRM] * 3


def test_a_rate_beside_the_swept_values_can_be_tested():
    rates = [0.011, 0.033, 0.111, 0.333, 1.111, 3.333, 11.11, 33.33]
    swept = stabsweep.sweep(**{**SWEEP, "space": {"lr": rates}, "num_trials": 16})
    assert swept.pick.is_ok and swept.pick.lr not in rates
    assert swept.pick.proofs["tests"] == 13
