"""The boundary sampler: it finds edges that are known, with few trials, in anybody's study."""

import math
import time
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from stabsweep import sampler
from stabsweep.errors import BadInput
from stabsweep.pruner import DivergencePruner
from stabsweep.records import Record, Verdict
from stabsweep.sampler import Boundary
from stabsweep.space import Space
from stabsweep.study import Study

LR = {"low": 1e-5, "high": 10}
SPACE = Space.parse({"lr": LR, "warmup_steps": {"low": 0, "high": 100}})
SEEDS = (0, 1)


def curved(point) -> float:
    """log10 of the edge: of a quadratic whose curvature falls with the warmup."""
    return -2.5 + 1.5 * (point["warmup_steps"] / 100) ** 0.5


class World:
    """Trials whose edge is known, in a study of ours."""

    def __init__(self, rule, space=SPACE, edge=curved, noise=0.0, num_trials=400, done=()):
        self.rule, self.edge, self.noise, self.space = rule, edge, noise, space
        self.rng = np.random.default_rng(0)
        self.study = Study(space, rule, DivergencePruner(), SEEDS, num_trials, done)
        self.trials: list = []
        self.records: list[Record] = list(done)

    def record(self, trial) -> Record:
        x = math.log10(trial.point["lr"])
        failed = x + self.noise * self.rng.logistic() > self.edge(trial.point)
        verdict = Verdict.DIVERGED if failed else Verdict.CONVERGED
        # The lower the rate the higher the loss.
        loss = None if failed else 2 - x / 5
        return Record(trial.number, trial.point, trial.seed, verdict, final_loss=loss)

    def tell(self, trials) -> None:
        for trial in trials:
            self.records.append(self.record(trial))
            self.study.tell(self.records[-1])

    def run(self, batch=32, limit=10**6) -> "World":
        while len(self.trials) < limit:
            trials = self.study.ask(min(batch, limit - len(self.trials)))
            if not trials:
                break
            self.trials += trials
            self.tell(trials)
        return self

    def refill(self, slots, limit) -> "World":
        """One slot is given back at a time, whichever ends next."""
        running = self.study.ask(slots)
        while running:
            trial = running.pop(int(self.rng.integers(len(running))))
            self.trials.append(trial)
            self.tell([trial])
            if len(self.trials) + len(running) < limit:
                running += self.study.ask(1)
        return self

    def error(self) -> float:
        """Mean absolute error of the edge over the rows, in decades."""
        chart = self.rule._chart
        rows = chart.rows(64)
        pockets = self.rule.found(self.study._study)
        found, _ = pockets.surface.at(*chart.place(rows))
        return float(np.mean(np.abs(found - [self.edge(row) for row in rows])))


def boundary(space=SPACE, num_trials=400, seed=0, done=(), tolerance=None, **given) -> Boundary:
    return Boundary(space, num_trials, SEEDS, seed, done, tolerance, **given)


@pytest.mark.parametrize("seed", range(3))
def test_a_smooth_edge_is_found_with_a_hundred_trials(seed):
    world = World(boundary(seed=seed)).run(limit=96)
    assert world.error() < 0.05
    near = [abs(math.log10(t.point["lr"]) - curved(t.point)) < 0.3 for t in world.trials[32:]]
    assert np.mean(near) > 0.4


@pytest.mark.parametrize("seed", range(2))
def test_a_noisy_edge_is_found_with_two_hundred(seed):
    assert World(boundary(seed=seed, best_share=0), noise=0.08).run(limit=192).error() < 0.07


def test_slots_that_are_refilled_one_by_one_find_it_as_well():
    cohorts = World(boundary()).run(limit=128).error()
    slots = World(boundary()).refill(24, 128)
    assert len(slots.trials) == 128
    assert slots.error() < max(1.5 * cohorts, 0.03)


def test_what_runs_is_not_asked_for_again():
    world = World(boundary(best_share=0)).run(limit=64)
    trials = world.study.ask(64)
    edge = [t for t in trials if abs(math.log10(t.point["lr"]) - curved(t.point)) < 0.5]
    points = [(round(math.log10(t.point["lr"]), 2), t.point["warmup_steps"]) for t in edge]
    assert len(set(points)) > 0.8 * len(points)


def test_it_stops_when_the_edge_is_known_and_the_best_has_every_seed():
    world = World(boundary(tolerance=0.05)).run(batch=16)
    assert world.study.satisfied == "the edge is known to 0.05 decades on every row"
    assert 32 <= world.study.num_trials == len(world.trials) < 250
    number = len(world.trials)
    assert world.study.ending == f"Stopped after {number} of 400 trials: {world.study.satisfied}."
    assert world.error() < 0.05
    # The best rate that is clear of the edge was run with both seeds.
    seeds: dict = {}
    for record in world.records:
        if math.log10(record.lr) < curved(record.point) - 0.4:
            seeds.setdefault((record.lr, record.point["warmup_steps"]), set()).add(record.seed)
    assert max(map(len, seeds.values())) == len(SEEDS)


def test_a_budget_that_is_spent_says_what_is_known():
    world = World(boundary(num_trials=40, tolerance=0.01), num_trials=40, noise=0.08).run()
    assert world.study.satisfied is None and len(world.trials) == 40
    assert world.study.ending.startswith(
        "Budget spent after 40 of 40 trials: the edge of the worst row is known to 0."
    )


def test_a_resumed_sweep_that_was_satisfied_asks_for_nothing():
    world = World(boundary(tolerance=0.05)).run(batch=16)
    done = world.records
    rule = boundary(tolerance=0.05, done={record.trial for record in done})
    again = World(rule, done=done).run()
    assert again.trials == [] and again.study.satisfied == world.study.satisfied


def test_a_resumed_sweep_goes_on_from_what_was_done():
    first = World(boundary()).run(limit=64)
    rule = boundary(done={record.trial for record in first.records})
    after = World(rule, done=first.records).run(limit=32)
    assert after.error() < 0.05
    assert {t.number for t in after.trials} == set(range(64, 96))


KINDS = {"sgd": 0.0, "adamw": -1.2, "lion": -1.9}


def test_categories_off_and_listed_rates_are_known_values():
    space = Space.parse(
        {
            "lr": [float(f"{v:.3g}") for v in np.geomspace(1e-5, 10, 61)],
            "optimizer": list(KINDS),
            "clip_norm": [1, None],
        }
    )

    def edge(point):
        return -1.03 + KINDS[point["optimizer"]] + 0.5 * (point["clip_norm"] is None)

    world = World(boundary(space), space, edge).run(limit=160)
    assert {t.point["lr"] for t in world.trials} <= set(space.axes["lr"].values)
    assert {(t.point["optimizer"], t.point["clip_norm"]) for t in world.trials} == {
        (name, clip) for name in KINDS for clip in (1, None)
    }
    assert world.error() < 0.08


def test_a_list_of_rates_that_is_used_up_ends_it():
    space = Space.parse({"lr": [1e-4, 1e-3, 1e-2, 1e-1, 1], "optimizer": list(KINDS)})
    world = World(
        boundary(space, tolerance=0.01), space, lambda p: -1.4 + KINDS[p["optimizer"]] / 2
    ).run(batch=8)
    assert world.study.satisfied == "all listed rates near the edge have been run with every seed"
    ran = [(t.point["lr"], t.point["optimizer"], t.seed) for t in world.trials]
    assert len(ran) - len(set(ran)) <= 2 and len(ran) <= 30


def test_no_point_is_run_twice_with_one_seed():
    for space in (SPACE, Space.parse({"lr": {"low": 1e-3, "high": 1.2e-3}})):
        world = World(boundary(space), space, lambda _: -2.97, noise=0.05).run(limit=160)
        ran = [(*t.point.values(), t.seed) for t in world.trials]
        assert len(ran) - len(set(ran)) <= 2


def test_a_single_row_is_a_k_section():
    space = Space.parse({"lr": LR})
    world = World(boundary(space, tolerance=0.05), space, lambda _: -1.7).run(batch=8)
    assert world.error() < 0.05 and len(world.trials) < 64


def test_more_rows_than_a_plan_looks_at_are_all_found():
    space = Space.parse(
        {"lr": LR, "optimizer": list(KINDS), "init_gain": {"low": 0.1, "high": 10},
         "clip_norm": [0.1, 0.3, 1, 3, 10], "warmup_steps": [0, 10, 30, 90]}
    )  # fmt: skip

    def edge(point):
        return -1.2 + KINDS[point["optimizer"]] / 2 + 0.3 * math.log10(point["init_gain"])

    world = World(boundary(space), space, edge).run(limit=256)
    assert len(world.rule._rows) > 96 and world.error() < 0.1


@pytest.mark.parametrize("height, word", [(9, "beyond"), (-9, "beyond")])
def test_when_all_hold_or_all_fail_it_stops_early(height, word):
    world = World(boundary(tolerance=0.05), edge=lambda _: height).run(batch=16)
    assert len(world.trials) < 200
    assert world.study.satisfied
    assert word in world.rule.knowledge(world.study._study)


@pytest.mark.parametrize("height", [9, -9])
def test_an_edge_beyond_the_rates_needs_few_trials_and_some_near_their_end(height):
    space = Space.parse({"lr": LR})
    world = World(boundary(space, tolerance=0.05), space, lambda _: height).run(batch=24)
    assert world.study.satisfied == "the edge lies beyond the learning rates"
    assert len(world.trials) <= 72
    rates = [math.log10(trial.point["lr"]) for trial in world.trials]
    low, high = world.rule._chart.ends
    assert high - max(rates) <= 0.25 if height > 0 else min(rates) - low <= 0.25


def test_a_range_that_was_made_wider_is_not_called_known_before_it_was_tried():
    space = Space.parse({"lr": {"low": 1e-5, "high": 0.01}})
    known = World(boundary(space), space, lambda _: 9).run(limit=96)
    wider = Space.parse({"lr": {"low": 1e-5, "high": 1.0}})
    rule = boundary(wider, done=range(96), tolerance=0.05)
    world = World(rule, wider, lambda _: -0.5, done=known.records)
    assert rule.enough(world.study._study) is None
    world.run(batch=8)
    assert world.study.satisfied == "the edge is known to 0.05 decades" and world.error() < 0.1


def test_a_best_that_had_luck_with_one_seed_keeps_nobody_waiting():
    """Each new rate near the best ends lower than it by luck; one beside it had every seed."""

    class Lucky(World):
        def record(self, trial):
            made = super().record(trial)
            luck = len(self.records) / 1e4
            return made if made.final_loss is None else replace(made, final_loss=1 - luck)

    world = Lucky(boundary(tolerance=0.05)).run(batch=16)
    assert "is known to 0.05" in world.study.satisfied and len(world.trials) < 300


def test_the_same_seed_and_batches_give_the_same_trials():
    one, other = (World(boundary(seed=3)).run(limit=96).trials for _ in range(2))
    assert one == other != World(boundary(seed=4)).run(limit=96).trials


def test_a_strangers_study_can_optimize_with_it():
    seen = []

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-5, 10, log=True)
        warmup_steps = trial.suggest_int("warmup_steps", 0, 100)
        seen.append((math.log10(lr), curved({"warmup_steps": warmup_steps})))
        if seen[-1][0] > seen[-1][1]:
            return [math.nan, math.inf][len(seen) % 2]
        return 1.0

    rule = Boundary(SPACE, 90, (0,), tolerance=None)
    study = optuna.create_study(sampler=rule)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study.optimize(objective, n_trials=90)
    pockets = rule.found(study)
    z = np.linspace(0, 1, 30)[:, None]
    found, _ = pockets.surface.at(z, np.zeros(30, int))
    assert np.abs(found - (-2.5 + 1.5 * z[:, 0] ** 0.5)).mean() < 0.06
    assert np.mean([abs(x - edge) < 0.3 for x, edge in seen[40:]]) > 0.3


def test_what_pruned_failed_and_ran_to_nan_count_as_failures():
    rule = boundary()
    study = optuna.create_study(sampler=rule)
    distributions = Study(SPACE, rule, DivergencePruner(), SEEDS, 400)._distributions
    for state in (TrialState.PRUNED, TrialState.FAIL):
        study.tell(study.ask(distributions), state=state)
    with pytest.warns(UserWarning, match="nan is not acceptable"):
        study.tell(study.ask(distributions), math.nan)
    study.tell(study.ask(distributions), 1.0)
    rule.found(study)
    assert rule._finished.held == [False, False, False, True]


def test_what_cannot_be_judged_says_nothing():
    rule = boundary()
    world = World(rule)
    trials = world.study.ask(4)
    for trial in trials:
        world.study.tell(Record(trial.number, trial.point, 0, Verdict.PEAK_NOT_REACHED))
    assert rule.found(world.study._study) is None
    assert rule.knowledge(world.study._study) == "nothing is known of the edge"


def test_a_stall_above_what_learned_has_collapsed():
    space = Space.parse({"lr": LR})
    rule = boundary(space)
    world = World(rule, space)
    trials = sorted(world.study.ask(8), key=lambda trial: trial.point["lr"])
    verdicts = [Verdict.TOO_SLOW, *[Verdict.CONVERGED] * 3, *[Verdict.TOO_SLOW] * 4]
    for trial, verdict in zip(trials, verdicts, strict=True):
        record = Record(trial.number, trial.point, trial.seed, verdict, provisional=True)
        world.study.tell(record)
    rule.found(world.study._study)
    sample = rule._finished.sample()
    assert sample.failed[np.argsort(sample.x)].tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize(
    ("above", "failed", "says"), [(1.0, False, False), (1.6, False, True), (1.0, True, True)]
)
def test_a_stall_among_slow_rates_has_not(above, failed, says):
    space = Space.parse({"lr": LR})
    rule = boundary(space)
    world = World(rule, space)
    trials = sorted(world.study.ask(4), key=lambda trial: trial.point["lr"])
    ends = [(Verdict.CONVERGED, 1.5), (Verdict.TOO_SLOW, 2.0), (Verdict.DIVERGED, None)]
    ends = [
        *ends[:2],
        *(ends[2:] if failed else [(Verdict.CONVERGED, 1.2)]),
        (Verdict.CONVERGED, above),
    ]
    if above > 1.5:
        ends[2] = (Verdict.CONVERGED, above)
    for trial, (verdict, loss) in zip(trials, ends, strict=True):
        world.study.tell(Record(trial.number, trial.point, 0, verdict, final_loss=loss))
    rule.found(world.study._study)
    sample = rule._finished.sample()
    assert bool(sample.failed[np.argsort(sample.x)][1]) is says


@pytest.mark.parametrize(
    "given, match",
    [
        ({"tolerance": 0}, "sampler.tolerance=0 is not allowed"),
        ({"tolerance": "small"}, "sampler.tolerance='small'"),
        ({"tolerance": True}, "sampler.tolerance=True"),
        ({"best_share": -0.1}, "sampler.best_share=-0.1 .* from 0 to 0.5"),
        ({"explore_share": math.nan}, "sampler.explore_share=nan"),
        ({"best_share": 0.5, "explore_share": 0.5}, "leave too little for the edge"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given, match):
    with pytest.raises(BadInput, match=match):
        sampler.build("boundary", SPACE, 10, SEEDS, **given)


def test_an_ask_stays_cheap():
    world = World(boundary(num_trials=2000), num_trials=2000)
    began = time.process_time()
    world.run(limit=512)
    print(f"{1e3 * (time.process_time() - began) / 512:.2f} ms a trial at 512")
    assert len(world.trials) == 512


def test_it_agrees_with_itself_on_what_is_known():
    world = World(boundary(tolerance=0.05)).run(batch=16)
    assert world.rule.knowledge(world.study._study) == world.study.satisfied


@pytest.mark.parametrize("seed", range(3))
def test_a_good_rate_is_tried_in_all_rows_where_they_are_few(seed):
    """A row must not look worse because nothing was run where the others are best."""

    class Valley(World):
        def record(self, trial) -> Record:
            record = super().record(trial)
            loss = (math.log10(record.lr) + 3.5) ** 2
            return record if record.final_loss is None else replace(record, final_loss=loss)

    space = Space.parse({"lr": LR, "warmup_steps": [0, 10, 100]})
    rule = boundary(space, num_trials=90, seed=seed)
    world = Valley(rule, space, lambda point: -1.0, num_trials=90).run(batch=16)
    best = min((r for r in world.records if r.final_loss is not None), key=lambda r: r.final_loss)
    for steps in (0, 10, 100):
        rates = [r.lr for r in world.records if r.point["warmup_steps"] == steps]
        assert min(abs(math.log10(lr / best.lr)) for lr in rates) < 0.31
