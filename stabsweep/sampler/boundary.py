"""The boundary sampler: trials go where they tell most about the edge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from scipy import special

from stabsweep.chart import Chart, Sample
from stabsweep.errors import BadInput
from stabsweep.pocket import Pockets, find_pockets
from stabsweep.records import Array, Point, Value
from stabsweep.sampler._design import WholePoints
from stabsweep.sampler._farthest import NUM_CANDIDATES, farthest
from stabsweep.sampler._finished import ENDED, NEAR, Finished
from stabsweep.sampler._gain import most_telling
from stabsweep.sampler._lowest import clear_of_edge, is_tried, lowest
from stabsweep.space import Space
from stabsweep.surface import ROUGH, Shape, Surface, fit

MEAN_ERROR = 0.8
"""Mean absolute error of a Gaussian guess, in its deviations."""

BEYOND = 0.05
"""An edge that reaches back into the rates by less than so many decades, in the mean, lies beyond
them. Ours: the accuracy that is asked for as a rule."""

END = 0.25
"""A trial so near to an end of the rates, in decades, speaks for what lies beyond it. Ours."""

FIRST, ENOUGH = 32, 16
"""Trials that are spread evenly in the beginning (a third of a budget that is small), and results
after which no more of them are handed out."""

PLAN, REPLAN = 32, 8
"""Trials that one plan holds, and results after which a new one is made before it is used up (a
thirtieth of all trials when that is more)."""

MAX_PLACES, NUM_ROWS, MAX_ROWS = 4096, 64, 96
"""Rows of which the edge is asked for in the end; rows that ranges are cut into; rows that one plan
looks at, those known least the most often."""

MAX_FEW = 8
"""Rows that are tried at each other's best rates, when all of them are listed."""

NUM_TRIES = 20
"""Rates beside a point that are tried when it has had every seed."""

MAX_RIM = 0.6
"""Share of what is left to the edge that its pockets may take."""


class Boundary(WholePoints):
    """An Optuna sampler that finds the edge of stability with few trials.

    It learns the edge over all other axes from verdicts (`stabsweep.surface`), and puts trials
    where the noisy answer explains most of what is still unknown of the edge over all rows: on one
    row that becomes a k-section, over rows a spacing, near a noisy edge a repetition with another
    seed. What runs counts as asked. Stable trials far above the edge, and failures far below it,
    are pockets: they get a model of their own (`stabsweep.pocket`) and trials around their rims.

    In a study of anybody's a trial that was pruned, failed or has no finite value has diverged, any
    other has held; the parameter `lr` must be among the distributions that are asked for.

    It misleads where the edge runs along the learning rate (a cliff), which it smooths.

    Args:
        space: what is swept.
        num_trials: most trials in all.
        seeds: seeds that trials are run with, in turn.
        seed: of the sampler's own randomness.
        done: numbers of trials that were run before; the study tells it what they gave.
        tolerance: stop when the edge is known to so many decades on every row (expected error) and
            the best rate has had all seeds; None to use all trials.
        best_share: share of the trials that try the lowest losses that are clear of the edge, with
            other seeds and next to them: an edge alone gives no pick. 0 for the edge alone.
        explore_share: share that looks away from the edge, for pockets.

    Attributes:
        at_once: trials that may run at once: more would be asked for without an answer, on a GPU
            all of them.
        satisfied: why no more trials are needed, in words; None while they are.
    """

    def __init__(
        self,
        space: Space,
        num_trials: int,
        seeds: Sequence[int] = (0,),
        seed: int = 0,
        done: Collection[int] = (),
        tolerance: float | None = 0.05,
        best_share: float = 0.25,
        explore_share: float = 0.125,
    ) -> None:
        super().__init__()
        _check(tolerance, best_share, explore_share)
        self.num_trials = num_trials
        self.at_once = max(min(FIRST, num_trials // 3), 4)
        self.satisfied: str | None = None
        self._space, self._seeds, self._tolerance = space, tuple(seeds), tolerance
        self._num_best, self._num_away = round(best_share * PLAN), round(explore_share * PLAN)
        self._chart = Chart(space)
        self._finished = Finished(self._chart)
        self._rng = np.random.default_rng((seed, len(done)))
        known = set(done)
        self._left = iter([number for number in range(num_trials) if number not in known])
        rows = self._chart.rows(NUM_ROWS)
        kept = self._rng.permutation(len(rows))[:MAX_PLACES]
        self._rows = [rows[k] for k in sorted(kept)]
        self._row_places = self._chart.place(self._rows)
        self._shape, self._num_searched, self._num_seen = Shape(), 0, 0
        self._claimed = np.zeros(0, bool)
        self._queue: list[Point] = []
        self._used: dict[tuple[Value, ...], set[int]] = defaultdict(set)
        self._first = self._lay_out(len(done))

    def draw(self, study: optuna.Study) -> tuple[int, Point, int] | None:
        """See `WholePoints.draw`."""
        number = next(self._left, None)
        if number is None:
            return None
        self.index = number  # Whose turn it is decides which seed comes first.
        point = self._next(study)
        return number, point, self._seed(point)

    # ------------------------------------------------------------------ when to stop

    def enough(self, study: optuna.Study) -> str | None:
        """Why no more trials are needed, in words; None while they are."""
        self._look(study)
        return self.satisfied

    def found(self, study: optuna.Study) -> Pockets | None:
        """The edge and its pockets by all trials that have ended; None before the first."""
        self._take(study)
        sample = self._finished.sample()
        return None if sample is None else self._fit(sample)

    def knowledge(self, study: optuna.Study) -> str:
        """How well the edge is known by all trials that have ended, in words."""
        self._take(study)
        sample = self._finished.sample()
        if sample is None:
            return "nothing is known of the edge"
        known = self._known(self._fit(sample).surface, sample)
        if not known.any() or (self._tolerance is not None and known.max() <= self._tolerance):
            return self._says(known)
        where = " of the worst row" if len(self._rows) > 1 else ""
        return f"the edge{where} is known to {known.max():.2g} decades"

    def _known(self, surface: Surface, sample: Sample) -> Array:
        """To how many decades the edge of each row is known; 0 where it is beyond the rates."""
        mean, deviation = surface.at(*self._row_places)
        low, high = self._chart.ends
        # How far it reaches back into the rates, in the mean: the formula of expected improvement.
        u = np.maximum(low - mean, mean - high) / deviation
        density = np.exp(-(u**2) / 2.0) / math.sqrt(2 * math.pi)
        inside = deviation * (density - u * special.ndtr(-u))
        beyond = (u > 0) & (inside < BEYOND)
        # A surface that was never asked there says what its prior says.
        seen = np.where(sample.failed, sample.x - low, high - sample.x) <= END
        z, category = sample.z[seen], sample.category[seen]
        for k in np.flatnonzero(beyond):
            place, kind = self._row_places[0][k], self._row_places[1][k]
            is_near = (category == kind) & (np.abs(z - place) <= NEAR).all(1)
            beyond[k] = (is_near & (sample.failed[seen] == (mean[k] < low))).any()
        return np.where(beyond, 0.0, MEAN_ERROR * np.maximum(deviation, ROUGH))

    def _is_enough(self, surface: Surface, sample: Sample, clear: Array) -> str | None:
        known = self._known(surface, sample)
        if self._tolerance is None or known.max() > self._tolerance:
            return None
        given = (self._finished, clear, self._used, len(self._seeds))
        return self._says(known) if not self._num_best or is_tried(*given) else None

    def _says(self, known: Array) -> str:
        rows = " on every row" if len(self._rows) > 1 else ""
        if not known.any():
            return f"the edge lies beyond the learning rates{rows}"
        return f"the edge is known to {self._tolerance:g} decades{rows}"

    # ------------------------------------------------------------------ what comes next

    def _next(self, study: optuna.Study) -> Point:
        self._look(study)
        if self._first:
            return self._first.pop()
        while self._queue:
            point = self._fresh(self._queue.pop())
            if point is not None:
                return point
        return self._spread(1, self._rng.integers(len(self._chart.categories), size=1))[0]

    def _look(self, study: optuna.Study) -> None:
        """A new plan, when enough has been learned since the last."""
        num_ended = len(study.get_trials(deepcopy=False, states=ENDED))
        if self._first and num_ended < ENOUGH:
            return
        self._first = []
        if num_ended - self._num_seen >= max(REPLAN, num_ended // 30) or not self._queue:
            self._take(study)
            self._queue = self._plan()[::-1]

    def _take(self, study: optuna.Study) -> None:
        ended = study.get_trials(deepcopy=False, states=ENDED)
        for point, seed in self._finished.take(ended[self._num_seen :]):
            self._used[tuple(point.values())].add(seed)
        self._num_seen = len(ended)

    def _seed(self, point: Point) -> int:
        """A seed that the point has not had yet, else the one whose turn it is."""
        used = self._used[tuple(point.values())]
        turn = self.index % len(self._seeds)
        turns = [*self._seeds[turn:], *self._seeds[:turn]]
        seed = next((seed for seed in turns if seed not in used), turns[0])
        used.add(seed)
        return seed

    def _lay_out(self, num_done: int) -> list[Point]:
        """The first points, the last one first: evenly over numbers, the categories in turn."""
        number = self.at_once - num_done
        if number <= 0:
            return []
        return self._spread(number, np.arange(number) % len(self._chart.categories))[::-1]

    def _spread(self, number: int, category: Array) -> list[Point]:
        shares = self._even(number)
        low, high = self._chart.ends
        return self._chart.points(low + shares[:, 0] * (high - low), shares[:, 1:], category)

    def _even(self, number: int) -> Array:
        """Evenly spread shares of the rates and of each numeric axis, (number, 1 + D)."""
        power = max(math.ceil(math.log2(number)), 0)
        from scipy.stats import qmc  # Half a second, which no design needs.

        sobol = qmc.Sobol(len(self._chart.numeric) + 1, rng=self._rng)
        return sobol.random_base2(power)[:number]

    def _plan(self) -> list[Point]:
        """The next points: near the edge and around pockets, far away, and where loss is lowest."""
        sample = self._finished.sample()
        if sample is None:
            return self._spread(PLAN, self._rng.integers(len(self._chart.categories), size=PLAN))
        pockets = self._fit(sample)
        surface = pockets.surface
        clear = clear_of_edge(self._finished, surface, sample.z, sample.category)
        # Rows that a range was cut into are not compared with each other.
        is_few = all(axis.values for axis in self._space.row_axes) and len(self._rows) <= MAX_FEW
        rows = self._rows if is_few else []
        given = (self._finished, clear, self._used, len(self._seeds), self._num_best)
        best = lowest(*given, rows, surface)
        asked = [dict(point) for point in self._running.values()]
        edge, rim = self._near(pockets, asked, PLAN - self._num_away - len(best))
        self.satisfied = self._is_enough(surface, sample, clear)
        is_listed = bool(self._space.axes["lr"].values) and self._tolerance is not None
        if is_listed and all(self._is_used_up(point) for point in [*edge, *rim, *best]):
            self.satisfied = "all listed rates near the edge have been run with every seed"
        x, z, category = self._columns([*asked, *edge, *rim])
        tried = Sample(
            np.concatenate([sample.x, x]),
            np.concatenate([sample.z, z]),
            np.concatenate([sample.category, category]),
            np.zeros(len(sample.x) + len(x), bool),
        )
        shares = self._even(NUM_CANDIDATES)
        far = farthest(self._chart, surface, tried, shares, self._num_away, self._rng)
        away = self._chart.points(*far)
        # In any part of the plan each kind has its share.
        kinds = (edge, rim, away, best)
        turn = [(k + self._rng.random()) / len(kind) for kind in kinds for k in range(len(kind))]
        points = [*edge, *rim, *away, *best]
        return [points[k] for k in np.argsort(turn)]

    def _columns(self, points: Sequence[Mapping[str, Any]]) -> tuple[Array, Array, Array]:
        return (self._chart.heights(points), *self._chart.place(points))

    def _fit(self, sample: Sample) -> Pockets:
        """The edge without what its pockets claim, and the pockets."""
        number, center = len(self._chart.categories), self._chart.center
        search = len(sample.x) > 1.1 * self._num_searched
        claimed = np.zeros(len(sample.x), bool)
        claimed[: len(self._claimed)] = self._claimed
        for turn in range(2):
            rest = sample.without(claimed)
            surface = fit(rest, number, center, self._shape, search and not turn)
            self._shape = surface.shape
            pockets = find_pockets(sample, surface)
            if (pockets.claimed == claimed).all():
                break
            claimed = pockets.claimed
        self._claimed = claimed
        self._num_searched = len(sample.x) if search else self._num_searched
        return pockets

    def _near(
        self, pockets: Pockets, asked: Sequence[Mapping[str, Any]], number: int
    ) -> tuple[list[Point], list[Point]]:
        """Points near the edge, and points around the rims of its pockets."""
        (z, category), surface = self._row_places, pockets.surface
        running, ends = self._columns(asked), self._chart.ends
        rim: list[Point] = []
        _, deviation = surface.at(z, category)
        if pockets.models:
            most = round(MAX_RIM * number)
            doubt, *places = pockets.rim(ends, running, most, self._rng)
            rest = 2 * float(deviation.mean()) * len(self._chart.categories)
            kept = min(round(number * doubt / (doubt + rest)), most)
            rim = self._chart.points(*(column[:kept] for column in places))
        rows = np.arange(len(z))
        if len(z) > MAX_ROWS:
            chance = deviation / deviation.sum()
            rows = np.sort(self._rng.choice(len(z), MAX_ROWS, replace=False, p=chance))
        picks = most_telling(
            surface, z[rows], category[rows], ends, running, number - len(rim), self._rng
        )
        edge = []
        for row, x in picks:
            edge.append(self._chart.with_rate(self._rows[rows[row]], x))
        return edge, rim

    def _fresh(self, point: Point) -> Point | None:
        """The point, or one beside it: with the same seed it would answer the same.

        None where its rate is one of a list, and has had every seed.
        """
        x = float(self._chart.heights([point])[0])
        for _ in range(0 if self._space.axes["lr"].values else NUM_TRIES):
            if not self._is_used_up(point):
                break
            x += ROUGH * self._rng.standard_normal()
            point = self._chart.with_rate(point, x)
        return None if self._is_used_up(point) else point

    def _is_used_up(self, point: Point) -> bool:
        return len(self._used.get(tuple(point.values()), ())) >= len(self._seeds)


def _check(tolerance: float | None, best_share: float, explore_share: float) -> None:
    """Whether the arguments can be used.

    Raises:
        BadInput: one cannot.
    """
    if tolerance is not None and not (_is_number(tolerance) and 0 < tolerance < math.inf):
        raise BadInput(f"sampler.tolerance={tolerance!r} is not allowed: use a number > 0, or null")
    for name, share in (("best_share", best_share), ("explore_share", explore_share)):
        if not (_is_number(share) and 0 <= share <= 0.5):
            raise BadInput(f"sampler.{name}={share!r} is not allowed: use a number from 0 to 0.5")
    if best_share + explore_share > 0.75:
        raise BadInput(
            f"sampler.best_share={best_share:g} and explore_share={explore_share:g} leave too "
            "little for the edge: together at most 0.75"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
