import math
import statistics
import time

from stabsweep import sampler
from stabsweep.pruner import DivergencePruner
from stabsweep.records import Record, Verdict
from stabsweep.space import Space
from stabsweep.study import Study

SPACE = Space.parse({"lr": {"low": 1e-5, "high": 10}, "warmup_steps": {"low": 0, "high": 50}})
SEEDS = (0, 1)
EDGE, BEST = 0.1, 0.03


def record_of(trial) -> Record:
    """A toy of training: best just below an edge above which everything diverges."""
    lr = trial.point["lr"]
    if lr > EDGE:
        return Record(trial.number, trial.point, trial.seed, Verdict.DIVERGED, state="pruned")
    loss = abs(math.log10(lr / BEST)) + 0.01 * trial.seed
    return Record(trial.number, trial.point, trial.seed, Verdict.CONVERGED, final_loss=loss)


def study_of(num_trials, done=()) -> Study:
    rule = sampler.build("tpe", SPACE, num_trials, SEEDS, done=[r.trial for r in done])
    return Study(SPACE, rule, DivergencePruner(), SEEDS, num_trials, done)


def run(study, batch=12, limit=10**9) -> list[Record]:
    records: list[Record] = []
    while len(records) < limit and (trials := study.ask(batch)):
        for trial in trials:
            found = record_of(trial)
            if found.verdict is Verdict.DIVERGED:
                assert study.report(trial.number, 10, math.nan, {"initial_loss": 2.0})
            study.tell(found)
            records.append(found)
    return records


def distances(records) -> list[float]:
    return [abs(math.log10(record.lr / BEST)) for record in records]


def test_later_points_lie_nearer_to_the_best_and_below_the_edge():
    records = run(study_of(160))
    first, last = records[:40], records[-40:]
    assert statistics.median(distances(last)) < 0.5 * statistics.median(distances(first))
    diverged = [sum(r.verdict is Verdict.DIVERGED for r in part) for part in (first, last)]
    assert diverged[1] < diverged[0]


def test_a_resumed_sweep_goes_on_with_what_was_learned():
    done = run(study_of(200), limit=120)
    after = run(study_of(200, done))
    assert len(after) == 200 - len(done)
    assert {r.trial for r in done}.isdisjoint(r.trial for r in after)
    assert statistics.median(distances(after)) < 0.5 * statistics.median(distances(done[:40]))


def test_a_batch_does_not_crowd_one_place():
    study = study_of(200)
    run(study, limit=96)
    points = {trial.point["lr"] for trial in study.ask(24)}
    assert len(points) == 12


def test_an_ask_at_five_hundred_trials_takes_milliseconds():
    study = study_of(560)
    run(study, limit=500)
    began = time.process_time()
    study.ask(24)
    assert (time.process_time() - began) / 24 < 0.1
