from __future__ import annotations

import pytest
import yaml

import stabsweep
from stabsweep import confirm as tests
from stabsweep.confirm import LONGER, NUM_SEEDS, confirm, contest, stress
from stabsweep.pick import Pick
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM, CONSTANT
from stabsweep.records import Record, Verdict
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


OK = Verdict.CONVERGED


def trained(monkeypatch, known):
    """What a confirmation trained, if a run ends as `known` says of (rate, number of its seed)."""
    ran = []

    def train(plan, points, seeds):
        records = []
        for lr, seed in ((point["lr"], seed) for point in points for seed in seeds):
            end = known.get((lr, seed - 5), known.get(lr, (OK, 0.5)))
            ran.append((lr, seed - 5))
            records.append(
                Record(
                    0, {"lr": lr}, seed, *end[:1], final_loss=end[1], blind_loss=1.0, horizon=120
                )
            )
        return records

    monkeypatch.setattr(tests, "train", train)
    return ran


def picked(final_loss=0.6, ceiling=0.05, status="ok"):
    others = {"warmup_steps": 5, "optimizer": "sgd"}
    return Pick(status, "", 0.01, others, final_loss=final_loss, ceiling_lr=ceiling)


def rates_of(monkeypatch, pick, known=()):
    ran = trained(monkeypatch, dict(known))
    confirm(plan_of(), pick, lambda note: None)
    return ran


ALL = [1, 2, 3]


def test_higher_rates_are_tried_where_the_longer_run_learned_much_more(monkeypatch):
    unsettled = picked(final_loss=0.9)
    better = {0.01: (OK, 0.5), 0.018: (OK, 0.4), 0.032: (OK, 0.3)}
    ran = rates_of(monkeypatch, unsettled, better)
    assert ran == [(0.01, 1), (0.018, 1), (0.032, 1), (0.032, 2), (0.032, 3)]
    # No further than pays, or than the margin allows; and not where the sweep saw as much.
    worse = {**better, 0.018: (OK, 0.6)}
    assert rates_of(monkeypatch, unsettled, worse) == [(0.01, 1), (0.018, 1), (0.01, 2), (0.01, 3)]
    failed = {**better, 0.018: (Verdict.DIVERGED, None)}
    assert rates_of(monkeypatch, unsettled, failed)[2:] == [(0.01, 2), (0.01, 3)]
    low = picked(final_loss=0.9, ceiling=0.02)
    assert rates_of(monkeypatch, low, better)[2:] == [(0.018, 2), (0.018, 3)]
    assert rates_of(monkeypatch, picked(), better) == [(0.01, n) for n in ALL]


def test_a_higher_rate_that_fails_with_another_seed_gives_way_to_the_one_below(monkeypatch):
    bad = (Verdict.DIVERGED, None)
    known = {0.01: (OK, 0.5), 0.018: (OK, 0.4), (0.018, 3): bad, 0.032: (OK, 0.6)}
    ran = rates_of(monkeypatch, picked(final_loss=0.9), known)
    assert ran[:3] == [(0.01, 1), (0.018, 1), (0.032, 1)]
    assert ran[3:] == [(0.018, 2), (0.018, 3), (0.01, 2), (0.01, 3)]


def test_nobody_looks_lower_for_what_is_too_slow(monkeypatch):
    slow = (Verdict.TOO_SLOW, 1.0)
    assert rates_of(monkeypatch, picked(status="open"), {0.01: slow}) == [(0.01, 1)]
    bad = (Verdict.COLLAPSED, None)
    lower = [lr for lr, _ in rates_of(monkeypatch, picked(), {0.01: bad, (0.0056, 2): bad})]
    assert list(dict.fromkeys(lower)) == [0.01, 0.0056, 0.0031]


def test_the_usual_constant_is_run_where_the_margin_allows_it():
    said = []
    low = Pick("ok", "", 0.05, {"warmup_steps": 5, "optimizer": "sgd"}, ceiling_lr=0.1)
    proofs = contest(plan_of(), low, [], said.append)
    assert [(proof.test, proof.record.lr) for proof in proofs] == [(CONSTANT, 0.01)] * 2
    assert [proof.record.seed for proof in proofs] == [2, 5]
    assert {proof.record.steps for proof in proofs} == {40}
    assert said == ["constant: 1.0e-2 held for 2 of 2 seeds"]
    high = Pick("ok", "", 1e-4, {"warmup_steps": 5, "optimizer": "sgd"}, ceiling_lr=1e-3)
    assert contest(plan_of(), high, [], said.append) == []
    unknown = Pick("ok", "", 0.05, {"warmup_steps": 5, "optimizer": "lion"}, ceiling_lr=0.1)
    assert contest(plan_of(), unknown, [], said.append) == []
    assert contest(plan_of(), low, [proofs[0].record], said.append) == [], "the sweep tried it"


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
    assert bool(swept.proofs) == bool(tests)
    assert swept.pick.proofs.get("tests", 0) == tests


def test_a_sweep_without_a_pick_has_nothing_to_prove():
    swept = stabsweep.sweep(**{**SWEEP, "space": {"lr": [1e4, 1e5, 1e6, 1e7, 1e8]}})
    assert not swept.pick.is_ok and swept.proofs == ()


def test_proofs_are_judged_like_trials():
    swept = stabsweep.sweep(**SWEEP)
    assert all(isinstance(proof.record.verdict, Verdict) for proof in swept.proofs)
    assert [p.test for p in swept.proofs[:5]] == [CONSTANT] * 2 + [CONFIRM] * 3


def test_a_rate_beside_the_swept_values_can_be_tested():
    rates = [0.011, 0.033, 0.111, 0.333, 1.111, 3.333, 11.11, 33.33]
    swept = stabsweep.sweep(**{**SWEEP, "space": {"lr": rates}, "num_trials": 16})
    assert swept.pick.is_ok and swept.pick.lr not in rates
    assert swept.pick.proofs["tests"] == 13


def test_a_constant_that_won_is_not_run_again_by_a_resume(tmp_path, monkeypatch):
    """The losses of the sweep are made worse, so that the constant beats them."""
    given = {**SWEEP, "space": {"lr": [0.1, 0.3, 1.0, 3.0, 30.0]}, "num_trials": 10}
    monkeypatch.setattr("stabsweep.proof._loss", lambda record: -1.0)
    swept = stabsweep.sweep(**given, folder=tmp_path, stress=False)
    assert swept.pick.lr == 0.01 and swept.pick.reason.startswith("The usual constant ends lower")
    assert [proof.test for proof in swept.proofs] == [CONSTANT] * 2 + [CONFIRM] * 3
    monkeypatch.setattr(tests, "train", None)
    again = stabsweep.resume(tmp_path, watcher="off")
    assert again.pick == swept.pick and again.proofs == swept.proofs
