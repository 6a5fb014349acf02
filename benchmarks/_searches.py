"""Searches for an edge, ours and others, behind one form: (trials, error) as trials come in."""

from __future__ import annotations

import math
import time

import numpy as np
import optuna
from _landscapes import HIGH, LOW, Landscape
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from stabsweep.sampler import Boundary
from stabsweep.space import Axis, Space

COHORT = 32
SEEDS = (0, 1)

optuna.logging.set_verbosity(optuna.logging.ERROR)


def _space(land: Landscape) -> tuple[Space, dict]:
    axes = {"lr": Axis("lr", 10**LOW, 10**HIGH, "log")}
    distributions: dict = {"lr": FloatDistribution(10**LOW, 10**HIGH, log=True)}
    for k in range(land.num_axes):
        axes[f"z{k}"] = Axis(f"z{k}", 0.0, 1.0)
        distributions[f"z{k}"] = FloatDistribution(0, 1)
    if land.num_categories > 1:
        names = tuple("abcdefgh"[: land.num_categories])
        axes["kind"] = Axis("kind", values=names)
        distributions["kind"] = CategoricalDistribution(names)
    return Space(axes), distributions | {"seed": CategoricalDistribution(SEEDS)}


def boundary(land: Landscape, seed: int, budget: int, cohort: int = COHORT, **given):
    """Our sampler in a plain Optuna study, in cohorts; `given` are its own arguments."""
    space, distributions = _space(land)
    rule = Boundary(space, budget + cohort, SEEDS, seed, tolerance=None, **given)
    study = optuna.create_study(sampler=rule)
    found, asking = [], 0.0
    for count in range(cohort, budget + 1, cohort):
        began = time.process_time()
        trials = [study.ask(fixed_distributions=distributions) for _ in range(cohort)]
        asking += time.process_time() - began
        x = np.log10([t.params["lr"] for t in trials])
        z = np.array([[t.params[f"z{k}"] for k in range(land.num_axes)] for t in trials])
        c = np.array(["abcdefgh".index(t.params.get("kind", "a")) for t in trials])
        for trial, bad, steps, rate in zip(trials, *land.label(x, z, c), x, strict=True):
            if bad:
                trial.set_user_attr("bad_step", int(steps))
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, -rate)
        if cohort < 8 and count % COHORT:
            continue
        pockets = rule.found(study)
        assert pockets is not None
        guess = lambda z, c: pockets.surface.at(z, c)[0]  # noqa: B023, E731
        fails = lambda x, z, c: pockets.chance(x, z, c) > 0.5  # noqa: B023, E731
        found.append((count, land.error(guess), land.wrong_area(fails)))
    return found, 1e3 * asking / budget


def bisection(land: Landscape, seed: int, budget: int, num_rows: int = 8, cohort: int = COHORT):
    """Each row cut in equal parts, all rows at once, a whole cohort a turn; between rows a line."""
    share = num_rows
    if land.num_categories > 1:
        share = max(round(num_rows * 1.2 / land.num_categories), 3)
    side = np.linspace(0, 1, share)
    z = np.stack(np.meshgrid(*[side] * land.num_axes, indexing="ij"), -1)
    z = np.tile(z.reshape(-1, land.num_axes), (land.num_categories, 1))
    c = np.repeat(np.arange(land.num_categories), len(z) // land.num_categories)
    parts = max(cohort // len(z), 1) + 1
    low, high = np.full(len(z), LOW), np.full(len(z), HIGH)
    found, count = [], 0
    while count + len(z) * (parts - 1) <= budget and (high - low).max() > 1e-3:
        rates = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, parts + 1)[1:-1]
        many = parts - 1
        bad, _ = land.label(rates.ravel(), np.repeat(z, many, 0), np.repeat(c, many))
        bad = np.pad(bad.reshape(rates.shape), ((0, 0), (0, 1)), constant_values=True)
        rates = np.column_stack([low, rates, high])
        first, row = bad.argmax(1), np.arange(len(z))
        low, high = rates[row, first], rates[row, first + 1]
        count += len(z) * many
        found.append((count, land.error(_between(side, (low + high) / 2, land)), math.nan))
    return found, 0.0


def _between(side, edges, land: Landscape):
    from scipy.interpolate import RegularGridInterpolator

    shape = (land.num_categories, *[len(side)] * land.num_axes)
    lines = [
        RegularGridInterpolator([side] * land.num_axes, values, bounds_error=False)
        for values in edges.reshape(shape)
    ]

    def guess(z, c):
        return np.choose(c, [line(z) for line in lines]) if len(lines) > 1 else lines[0](z)

    return guess


def grid(land: Landscape, seed: int, budget: int, **_):
    """Full grids of many shapes and sizes; at each size the shape that did best, in hindsight."""
    best: dict[int, float] = {}
    for side in (3, 4, 5, 6, 8, 11, 16, 22, 32):
        axis = np.linspace(0, 1, side)
        z = np.stack(np.meshgrid(*[axis] * land.num_axes, indexing="ij"), -1)
        z = np.tile(z.reshape(-1, land.num_axes), (land.num_categories, 1))
        c = np.repeat(np.arange(land.num_categories), len(z) // land.num_categories)
        for num_rates in (6, 8, 11, 16, 22, 32, 45, 64):
            count = len(z) * num_rates
            if count > budget:
                continue
            x = np.linspace(LOW, HIGH, num_rates)
            bad, _ = land.label(
                np.tile(x, len(z)), np.repeat(z, num_rates, 0), np.repeat(c, num_rates)
            )
            bad = bad.reshape(len(z), num_rates)
            # An edge between two rates with the fewest verdicts on its wrong side.
            wrong = np.pad(np.cumsum(bad, 1), ((0, 0), (1, 0)))
            wrong = wrong + np.pad(np.cumsum(~bad[:, ::-1], 1)[:, ::-1], ((0, 0), (0, 1)))
            step = x[1] - x[0]
            edges = LOW + (wrong.argmin(1) - 0.5) * step
            error = land.error(_between(axis, edges, land))
            size = COHORT * math.ceil(count / COHORT)
            best[size] = min(best.get(size, math.inf), error)
    counts = np.arange(COHORT, budget + 1, COHORT)
    low = np.minimum.accumulate([best.get(int(n), math.inf) for n in counts])
    return [(int(n), float(min(e, 3.0)), math.nan) for n, e in zip(counts, low, strict=True)], 0.0


def _points(land: Landscape, shares, rng):
    x = LOW + shares[:, 0] * (HIGH - LOW)
    return x, shares[:, 1:], rng.integers(land.num_categories, size=len(x))


def _inputs(x, z, c, land: Landscape):
    return np.column_stack([(x - LOW) / 1.5, 4 * z, 4 * np.eye(land.num_categories)[c]])


def _first_failure(score, land: Landscape):
    """The edge that a score (positive where it fails) draws: its first zero from below."""
    rates = np.linspace(LOW, HIGH, 121)

    def guess(z, c):
        x = np.tile(rates, len(z))
        z, c = np.repeat(z, len(rates), 0), np.repeat(c, len(rates))
        found = score(_inputs(x, z, c, land)).reshape(-1, len(rates))
        first = np.where((found > 0).any(1), (found > 0).argmax(1), len(rates) - 1)
        left = np.maximum(first - 1, 0)
        row = np.arange(len(found))
        low, high = found[row, left], found[row, first]
        share = np.where(high > low, -low / np.maximum(high - low, 1e-12), 0).clip(0, 1)
        return rates[left] + share * (rates[1] - rates[0])

    return guess


def _guess(model, x, z, c, bad, land):
    if bad.all() or not bad.any():
        return land.error(lambda z, c: np.full(len(z), LOW if bad.all() else HIGH))
    model.fit(_inputs(x, z, c, land), bad)
    return land.error(_first_failure(model.decision_function, land))


def random_svm(land: Landscape, seed: int, budget: int, **_):
    """Random points and a support vector machine (scikit-learn)."""
    from sklearn.svm import SVC

    rng = np.random.default_rng(seed)
    x, z, c = _points(land, rng.random((budget, 1 + land.num_axes)), rng)
    bad, _ = land.label(x, z, c)
    model = SVC(C=10 if land.noise else 1000, gamma=0.5)
    sizes = [n for n in _sizes(budget) if n <= budget]
    return [(n, _guess(model, x[:n], z[:n], c[:n], bad[:n], land), math.nan) for n in sizes], 0.0


def _sizes(budget: int) -> list[int]:
    return [n for n in (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048) if n <= budget]


class _Classifier:
    """scikit-learn's GP classifier with a score."""

    def __init__(self, num_inputs: int) -> None:
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        kernel = ConstantKernel(25.0) * RBF([1.0] * num_inputs)
        self.model = GaussianProcessClassifier(kernel, optimizer=None)

    def fit(self, inputs, bad) -> None:
        self.model.fit(inputs, bad)

    def decision_function(self, inputs):
        return self.model.predict_proba(inputs)[:, 1] - 0.5


def sobol_gp(land: Landscape, seed: int, budget: int, **_):
    """Sobol points and a Gaussian process classifier (scikit-learn)."""
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    shares = qmc.Sobol(1 + land.num_axes, rng=seed).random_base2(math.ceil(math.log2(budget)))
    x, z, c = _points(land, shares[:budget], rng)
    bad, _ = land.label(x, z, c)
    model = _Classifier(1 + land.num_axes + land.num_categories)
    return [
        (n, _guess(model, x[:n], z[:n], c[:n], bad[:n], land), math.nan)
        for n in _sizes(min(budget, 512))
    ], 0.0


def gp_straddle(land: Landscape, seed: int, budget: int, **_):
    """The straddle rule (Bryan et al. 2005) on a GP regression of verdicts (scikit-learn)."""
    from scipy.stats import qmc
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    rng = np.random.default_rng(seed)
    sobol = qmc.Sobol(1 + land.num_axes, rng=seed)
    x, z, c = _points(land, sobol.random_base2(5), rng)
    bad, _ = land.label(x, z, c)
    num_inputs = 1 + land.num_axes + land.num_categories
    kernel = RBF([1.0] * num_inputs, (0.2, 20)) + WhiteKernel(0.02, (1e-3, 0.5))
    found = []
    began = time.process_time()
    for count in range(COHORT, min(budget, 384) + 1, COHORT):
        model = GaussianProcessRegressor(kernel)
        model.fit(_inputs(x, z, c, land), 2.0 * bad - 1)
        found.append((count, land.error(_first_failure(model.predict, land)), math.nan))
        fixed = GaussianProcessRegressor(model.kernel_, optimizer=None)
        more = _points(land, rng.random((400, 1 + land.num_axes)), rng)
        inputs, labels = _inputs(x, z, c, land), 2.0 * bad - 1
        ask = []
        for _ in range(8):
            fixed.fit(inputs, labels)
            mean, deviation = fixed.predict(_inputs(*more, land), return_std=True)
            for k in np.argsort(np.abs(mean) - 1.96 * deviation)[:4]:
                ask.append(int(k))
            # Believed as predicted, so that a cohort does not crowd one place.
            inputs = np.concatenate([inputs, _inputs(*(v[ask[-4:]] for v in more), land)])
            labels = np.concatenate([labels, mean[ask[-4:]]])
        new = [v[ask] for v in more]
        answer, _ = land.label(*new)
        x, z, c = (np.concatenate(pair) for pair in zip((x, z, c), new, strict=True))
        bad = np.concatenate([bad, answer])
    return found, 1e3 * (time.process_time() - began) / len(x)


def tpe(land: Landscape, seed: int, budget: int, **_):
    """Optuna's TPE, minimising a loss that falls with the rate until it diverges; then the SVM."""
    from sklearn.svm import SVC

    _, distributions = _space(land)
    distributions.pop("seed")
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    xs, zs, cs, bads, found = [], [], [], [], []
    for count in range(COHORT, min(budget, 512) + 1, COHORT):
        trials = [study.ask(fixed_distributions=distributions) for _ in range(COHORT)]
        x = np.log10([t.params["lr"] for t in trials])
        z = np.array([[t.params[f"z{k}"] for k in range(land.num_axes)] for t in trials])
        c = np.array(["abcdefgh".index(t.params.get("kind", "a")) for t in trials])
        bad, _ = land.label(x, z, c)
        for trial, failed, rate in zip(trials, bad, x, strict=True):
            study.tell(trial, None if failed else -rate, TrialState.PRUNED if failed else None)
        for column, more in zip((xs, zs, cs, bads), (x, z, c, bad), strict=True):
            column.append(more)
        found.append((
            count,
            _guess(SVC(C=1000, gamma=0.5), *map(np.concatenate, (xs, zs, cs, bads)), land),
            math.nan,
        ))  # fmt: skip
    return found, 0.0


def learner2d(land: Landscape, seed: int, budget: int, **_):
    """Learner2D of the package `adaptive` on verdicts; its own triangles draw the edge."""
    from adaptive import Learner2D  # type: ignore[import-not-found]

    learners = [Learner2D(lambda _: 0.0, [(LOW, HIGH), (0, 1)]) for _ in range(land.num_categories)]
    found = []
    share = COHORT // land.num_categories
    for count in range(COHORT, min(budget, 512) + 1, COHORT):
        for k, learner in enumerate(learners):
            points, _ = learner.ask(share)
            x, z = np.array(points).T
            bad, _ = land.label(x, z[:, None], np.full(len(x), k))
            learner.tell_many(points, (2.0 * bad - 1).tolist())
        lines = [learner.interpolator(scaled=False) for learner in learners]

        def score(x, z, c, lines=lines):
            return np.choose(c, [line(x, z[:, 0]).ravel() for line in lines])

        rates = np.linspace(LOW, HIGH, 241)

        def guess(z, c, score=score, rates=rates):
            x = np.tile(rates, len(z))
            values = score(x, np.repeat(z, len(rates), 0), np.repeat(c, len(rates)))
            return rates[(values.reshape(-1, len(rates)) > 0).argmax(1)]

        found.append((count, land.error(guess), math.nan))
    return found, 0.0
