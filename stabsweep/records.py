"""What a sweep writes down: the point tried, the curves it gave, the word it earned."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = float | int | bool | str | None
"""The value of one axis; `None` is the text `none` or `null` of a config: switched off."""

Point: TypeAlias = Mapping[str, Value]
"""One value for every axis of the space, without the seed."""

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """One training run that is to be done.

    Attributes:
        number: its number in the sweep, from 0.
        point: one value for every axis.
        seed: seed of weights and batches.
    """

    number: int
    point: Point
    seed: int


class Verdict(enum.Enum):
    """What a training run did; the value is the sentence that a reader sees."""

    CONVERGED = "The loss came down and stayed down."
    RECOVERED = "The loss rose well above its start, then came down and stayed down."
    SPIKY = "It learned, but with more loss spikes than the limit allows."
    TOO_SLOW = "Finite and undisturbed, but it never left its start: too slow for this horizon."
    DEGRADED = "It learned, then lost a good part of what it had learned."
    OSCILLATING = "Bounded and going nowhere, with a large oscillation."
    COLLAPSED = "Finite, but it ended where a model ends that ignores its input, or worse."
    DIVERGED = "Not finite any more, or running away."
    INVALID = (
        "Not finite whatever the rate: the input, the init or the model is broken. Neither another "
        "rate nor clipping can help."
    )
    CUT_SHORT = (
        "Stopped for its loss alone, before its end: it says nothing about its learning rate."
    )
    PEAK_NOT_REACHED = (
        "The horizon ended inside the warmup or too soon after it: the peak rate was not tested."
    )

    @property
    def label(self) -> str:
        """The word in files and on the command line: the name in lower case."""
        return self.name.lower()

    @property
    def is_judged(self) -> bool:
        """Whether the trial says anything about its learning rate."""
        return self not in (Verdict.INVALID, Verdict.CUT_SHORT, Verdict.PEAK_NOT_REACHED)

    @property
    def is_stable(self) -> bool:
        """Whether the trial counts as stable; `spiky` does, and is shown apart."""
        return self in (Verdict.CONVERGED, Verdict.RECOVERED, Verdict.SPIKY, Verdict.TOO_SLOW)

    @property
    def is_learned(self) -> bool:
        """Whether the trial ended with something learned and kept."""
        return self in (Verdict.CONVERGED, Verdict.RECOVERED, Verdict.SPIKY)


VERDICTS: Mapping[str, Verdict] = {verdict.label: verdict for verdict in Verdict}

NUMBER = "trial"
"""Name under which an Optuna trial, whose own numbers shift on a resume, carries that of ours."""

SEED = "seed"
"""Name under which the seed stands beside a point's axes, as a parameter of an Optuna trial."""

CURVES = ("loss", "grad_norm", "clip_coef", "update_ratio", "lr")
"""The curves of a trace, in the order in which a trace file stores them."""


@dataclass(frozen=True)
class Trace:
    """A trial's curves, one value an optimizer step, and what is needed to read them.

    Attributes:
        loss: (T,) training loss on the step's batch, before the step.
        grad_norm: (T,) global L2 norm of the gradient, before clipping.
        clip_coef: (T,) factor in (0, 1] that the gradient was multiplied with; 1 is "not clipped".
        update_ratio: (T,) L2 norm of the step's update over the L2 norm of the weights.
        lr: (T,) learning rate of the step, warmup and schedule applied.
        initial_loss: median loss over several batches before training.
        blind_loss: loss of the best predictor that ignores its input; None when there is no such
            thing (then the initial loss takes its place).
        horizon: steps that the trial was to run; T is smaller when it was pruned.
        warmup_steps: steps until the peak rate is reached.
        displacement: L2 distance of the last weights from the first, over the norm of the first.
    """

    loss: Array
    grad_norm: Array
    clip_coef: Array
    update_ratio: Array
    lr: Array
    initial_loss: float
    blind_loss: float | None
    horizon: int
    warmup_steps: int = 0
    displacement: float = math.nan

    @property
    def num_steps(self) -> int:
        """T, the number of steps that were run."""
        return len(self.loss)

    @property
    def blind(self) -> float:
        """The blind loss, or the initial loss for a task that has none."""
        return self.initial_loss if self.blind_loss is None else self.blind_loss

    @property
    def skipped(self) -> Array:
        """(T,) steps that a gradient scaler left out: the gradient overflowed, no weight moved."""
        return skipped(self.stacked())

    def truncated(self, num_steps: int) -> Trace:
        """The same trace as it stood after its first `num_steps` steps."""
        return replace(self, **{name: getattr(self, name)[:num_steps] for name in CURVES})

    def every(self, stride: int) -> Trace:
        """The trace of every `stride`-th step: shorter, as a reader would see it from afar."""
        return replace(
            self,
            **{name: getattr(self, name)[::stride] for name in CURVES},
            horizon=-(-self.horizon // stride),
            warmup_steps=self.warmup_steps // stride,
        )

    def stacked(self) -> Array:
        """The five curves as one (5, T) array, in the order of `CURVES`."""
        return np.stack([getattr(self, name) for name in CURVES])


def skipped(curves: Array) -> Array:
    """The steps of (5, T) curves that a gradient scaler left out, (T,); see `Trace.skipped`.

    An infinite norm is also clipped to nothing, with a coefficient of 0: that is no scaler's doing.
    """
    loss, grad_norm, clip_coef, update_ratio, _ = np.asarray(curves)
    left_out = ~np.isfinite(grad_norm) & (clip_coef == 1) & (update_ratio == 0)
    return np.isfinite(loss) & left_out


@dataclass(frozen=True)
class Record:
    """One finished trial: point, verdict, numbers, and where its trace is.

    Attributes:
        trial: number of the trial in its design, from 0.
        point: axis -> value.
        seed: seed of weights and batches; trials with one seed share both.
        verdict: what training did.
        state: how the trial ended: `complete`, `pruned` (stopped early) or `failed` (an error).
        reason: the evidence for the verdict in one sentence, with its step.
        provisional: a stall that only the other trials of its row can explain.
        steps: optimizer steps run, of `horizon`.
        initial_loss: median loss over several batches before training.
        final_loss: mean loss over the last tenth of the steps run; None when not finite.
        best_loss: lowest smoothed loss; None when nothing was finite.
        peak_loss: highest finite loss.
        blind_loss: see `Trace`.
        bad_step: first step with a non-finite loss or gradient.
        last_update_ratio: update over weights of the step before that one; None without it.
        clip_share: share of the steps in which clipping engaged.
        spike_share: share of the steps that are loss spikes.
        overflows: steps that a gradient scaler left out because the gradient overflowed.
        displacement: see `Trace`.
        seconds: the trial's share of the training time.
        trace: path of the trace file, relative to the result folder.
        error: for `failed`: what went wrong.
    """

    trial: int
    point: Point
    seed: int
    verdict: Verdict
    state: str = "complete"
    reason: str = ""
    provisional: bool = False
    steps: int = 0
    horizon: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    peak_loss: float | None = None
    blind_loss: float | None = None
    bad_step: int | None = None
    last_update_ratio: float | None = None
    clip_share: float = 0.0
    spike_share: float = 0.0
    overflows: int = 0
    displacement: float | None = None
    seconds: float = 0.0
    trace: str | None = None
    error: str | None = field(default=None)

    @property
    def lr(self) -> float:
        """The trial's peak learning rate."""
        return float(self.point["lr"])  # type: ignore[arg-type]

    @property
    def blind(self) -> float | None:
        """The blind loss, or the initial loss for a task that has none."""
        return self.initial_loss if self.blind_loss is None else self.blind_loss

    def with_curves(self, curves: Array, warmup_steps: int) -> Trace:
        """The trace of which the record is the summary.

        Args:
            curves: (5, T) in the order of `CURVES`.
            warmup_steps: of the trial; a record has it only where it was swept.
        """
        return Trace(
            **dict(zip(CURVES, curves, strict=True)),
            # A number that was not finite is None in a record.
            initial_loss=math.nan if self.initial_loss is None else self.initial_loss,
            blind_loss=self.blind_loss,
            horizon=self.horizon,
            warmup_steps=warmup_steps,
            displacement=math.nan if self.displacement is None else self.displacement,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; what is not finite becomes None."""
        plain = {name: _plain(value) for name, value in vars(self).items()}
        plain["point"] = {name: _plain(value) for name, value in self.point.items()}
        plain["verdict"] = self.verdict.label
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Record:
        """The record that `as_dict` wrote; unknown keys of newer versions are dropped.

        Raises:
            KeyError: a required key is missing, or the verdict is not a known word.
            TypeError: it is no mapping, or a value has no such form.
        """
        for name in ("trial", "point", "seed", "verdict"):
            if name not in plain:
                raise KeyError(name)
        known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain}
        known["point"] = dict(plain["point"])
        known["verdict"] = VERDICTS[plain["verdict"]]
        return cls(**known)

    @classmethod
    def from_trial(cls, trial: Any) -> Record:
        """The record that a finished trial of an Optuna study stands for.

        A trial of a copy of a sweep (`storage=`) carries its verdict. Of a study of somebody else,
        whose values are final losses, one that completed with a finite value has held
        (`converged`); any other has `diverged`, also what Optuna calls failed: so it calls a NaN.

        Args:
            trial: an `optuna.trial.FrozenTrial`; its params are the point, but for `seed`.

        Raises:
            ValueError: it is not finished.
        """
        if not trial.state.is_finished():
            raise ValueError(f"trial {trial.number} is not finished")
        known = {name: trial.user_attrs.get(name) for name in (NUMBER, SEED, "verdict")}
        held = trial.state.name == "COMPLETE" and math.isfinite(trial.value)
        verdict = VERDICTS.get(known["verdict"] or ("converged" if held else "diverged"))
        seed = trial.params.get(SEED, known[SEED])
        states = {"PRUNED": "pruned"} | ({"FAIL": "failed"} if known["verdict"] else {})
        told = ("reason", "steps", "horizon", "blind_loss")
        return cls(
            trial.number if known[NUMBER] is None else known[NUMBER],
            {name: value for name, value in trial.params.items() if name != SEED},
            0 if seed is None else seed,
            Verdict.INVALID if verdict is None else verdict,
            state=states.get(trial.state.name, "complete"),
            provisional=verdict is Verdict.TOO_SLOW,
            final_loss=trial.value if held else None,
            **{name: trial.user_attrs[name] for name in told if name in trial.user_attrs},
        )


def finite(value: float) -> float | None:
    """The value as a float, or None when it is NaN or infinite: what a JSON file may hold."""
    return float(value) if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return finite(float(value))
    return value
