"""A sweep's answer: region, pick, table, picture, text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabsweep import clipper, environment, report
from stabsweep.advice import find_advice
from stabsweep.drift import find_drift
from stabsweep.errors import BadInput, unknown
from stabsweep.extension import WORD, read_extensions, widened
from stabsweep.limits import check_count, check_margin
from stabsweep.pick import Pick, find_pick
from stabsweep.plain import save_yaml
from stabsweep.proof import CONFIRM, CONSTANT, Proof, proven
from stabsweep.records import CURVES, Array, Record, Value
from stabsweep.region import Region, find_region
from stabsweep.space import Space
from stabsweep.store import (
    THEORY,
    as_table,
    read_bracket,
    read_config,
    read_environment,
    read_notes,
    read_proofs,
    read_records,
    read_theory,
    read_thresholds,
    read_trace,
    save_outcome,
    save_proofs,
)
from stabsweep.theory import Theory

if TYPE_CHECKING:
    import pandas as pd

NEUTRAL: Mapping[str, Value] = {
    "warmup_steps": 0,
    "clip_norm": None,
    "schedule": "constant",
    "init": "default",
    "init_gain": 1.0,
}
"""Hyperparameters that hold for a whole sweep, at the value that does nothing: a pick names those
that do something."""


@dataclass(frozen=True)
class Result:
    """A sweep's answer.

    Attributes:
        region: edges and bands of every row, see `stabsweep.region`.
        pick: the recommended learning rate, or the reason why there is none.
        config: what was asked for, as plain values.
        folder: the result folder; None when nothing was kept.
        seconds: how long the run took; None when it was loaded.
        interrupted: whether it was ended by Ctrl-C.
        notes: which engine ran and why, and whether cohorts were halved, a line each.
        proofs: what the pick was put through after the sweep.
        theory: the edge of linear theory in the pick's row; None where there is none.
        bracketed: the short trials that found the range before it.
        candidate: the pick as the trials alone give it, before it was put to the test.
    """

    region: Region
    pick: Pick
    config: Mapping[str, Any]
    folder: Path | None = None
    seconds: float | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    theory: Theory | None = None
    bracketed: tuple[Record, ...] = ()
    candidate: Pick | None = None

    @classmethod
    def find(
        cls,
        space: Space,
        records: Sequence[Record],
        config: Mapping[str, Any],
        proofs: Sequence[Proof] = (),
        region: Region | None = None,
        **known: Any,
    ) -> Result:
        """The result that a set of records gives.

        Args:
            space: what was swept.
            records: the trials that have ended.
            config: what was asked for.
            proofs: what the pick was put through.
            region: of these records, where it is known already.
            known: the other attributes.
        """
        region = region or find_region(space, records)
        fixed = {"optimizer": name_of(config["optimizer"])}
        fixed |= {name: config[name] for name, off in NEUTRAL.items() if config[name] != off}
        pick = find_pick(region, fixed, config["margin_decades"], config["num_planned"])
        pick = _with_clipper(pick, space, config)
        folder = known.get("folder")
        if folder and pick.lr is not None:
            pick = _with_drift(pick, region, config, folder)
        proved = proven(pick, proofs)
        return cls(region, proved, config, proofs=tuple(proofs), candidate=pick, **known)

    @property
    def records(self) -> pd.DataFrame:
        """All trials as a table: a column an axis, then verdict, losses and the rest."""
        return as_table(self.region.records)

    @property
    def subject(self) -> str:
        """What was swept, for a headline: `adamw on transformer`."""
        chosen = self.region.space.axes.get("optimizer")
        rule = " / ".join(map(str, chosen.values)) if chosen else name_of(self.config["optimizer"])
        return f"{rule} on {name_of(self.config['model'])}"

    @property
    def cost(self) -> dict[str, int]:
        """Optimizer steps of all trials, by what they were for: what a sweep costs anywhere."""
        parts = {
            "bracket": list(self.bracketed),
            "sweep": list(self.region.records),
            "constant": [p.record for p in self.proofs if p.test == CONSTANT],
            "confirm": [p.record for p in self.proofs if p.test == CONFIRM],
            "stress": [p.record for p in self.proofs if p.test not in (CONSTANT, CONFIRM)],
        }
        steps = {name: sum(r.steps for r in records) for name, records in parts.items()}
        return {name: number for name, number in steps.items() if number}

    def plot(self) -> Any:
        """The picture as a matplotlib figure: map, losses, sample traces."""
        return report.draw_report(*self._pictured)

    @property
    def _pictured(self) -> tuple[Any, ...]:
        """What every picture of it is drawn from."""
        load = partial(read_trace, self.folder) if self.folder else None
        planned = self.config["num_planned"]
        return self.region, self.pick, self.subject, load, planned, self.theory

    @property
    def advice(self) -> list[str]:
        """What the tuning playbook's checklist has to say, see `stabsweep.advice`."""
        names = ("optimizer", "warmup_steps", "clip_norm")
        fixed = {name: self.config.get(name) for name in names}
        fixed["optimizer"] = name_of(fixed["optimizer"])
        fixed["clipper"] = name_of(self.config.get("clipper", "norm"))
        return find_advice(self.region, self.pick, fixed, self.proofs)

    @property
    def _also(self) -> list[tuple[str, str]]:
        """What is said beside the answer: a word and a text each."""
        extended = [note.removeprefix(WORD) for note in self.notes if note.startswith(WORD)]
        theory = [self.theory.sentence(self.region)] if self.theory else []
        words = {"Extended": extended, "Theory": theory, "Advice": self.advice}
        return [(word, text) for word, texts in words.items() for text in texts]

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        planned = self.config["num_planned"]
        return report.summary(
            self.region,
            self.pick,
            self.subject,
            planned,
            self.folder,
            self.seconds,
            [note for note in self.notes if not note.startswith(WORD)],
            self.ending,
            self._also,
            self.cost,
        )

    @property
    def ending(self) -> str | None:
        """Why the sweep ended where it did; None where the sampler had no say in it."""
        return self.config.get("ending")

    def __repr__(self) -> str:
        # A dataclass's own would be all trials.
        return f"<Result: {report.conclusion(self.region, self.pick, self.subject)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows of a result that is a cell's last expression."""
        return report.render_cell(self.region, self.pick, self.plot(), self.subject)

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values: the pick, the edges of every row, the counts."""
        counts: dict[str, int] = {}
        for record in self.region.records:
            counts[record.verdict.label] = counts.get(record.verdict.label, 0) + 1
        return {
            "subject": self.subject,
            "pick": self.pick.as_dict(),
            "rows": [row.as_dict() for row in self.region.rows],
            "theory": self._theory(),
            "advice": self.advice,
            "verdicts": counts,
            "trials": len(self.region.records),
            "trials_planned": self.config["num_planned"],
            "trials_pruned": sum(r.state == "pruned" for r in self.region.records),
            "cost": self.cost,
            "extended": list(self.config.get("extended") or ()),
            "folder": str(self.folder) if self.folder else None,
            "interrupted": self.interrupted,
            "notes": list(self.notes),
            "ending": self.ending,
        }

    def _theory(self) -> dict[str, Any] | None:
        if self.theory is None:
            return None
        return {**self.theory.as_dict(), "edge_decades": self.theory.decades(self.region)}

    @property
    def _replay(self) -> tuple[str, str]:
        """What to type before and after a trial's number to train it again."""
        objects = "".join(f", {key}=..." for key in python_objects(self.config))
        if objects:
            return (
                f"stabsweep.find_replay(stabsweep.load({str(self.folder)!r}), trial=",
                f"{objects})",
            )
        return f"stabsweep replay {shlex.quote(str(self.folder))} trial=", ""

    def save_report(self) -> None:
        """Writes pictures, page, table and pick into the result folder.

        Raises:
            BadInput: the folder cannot be written to.
        """
        assert self.folder is not None
        try:
            if self.proofs:
                save_proofs(self.folder, [proof.as_dict() for proof in self.proofs])
            if self.theory:
                save_yaml(self.folder / THEORY, self.theory.as_dict())
            # Once it is there, whoever watches reads all of the answer.
            save_outcome(self.folder, self.region.records, self.pick.as_dict())
            report.save_figure(self.plot(), self.folder)
            judged_with = read_thresholds(self.folder)
            page = report.render_page(
                self.region,
                self.pick,
                (self.folder / "map.png").read_bytes(),
                self.subject,
                self.config["num_planned"],
                {
                    "Command": f"stabsweep resume {self.folder}",
                    "Config": self.config,
                    **({"Notes": "\n".join(self.notes)} if self.notes else {}),
                    **({"Judged again with": judged_with} if judged_with else {}),
                    "Environment": environment.brief(read_environment(self.folder)),
                },
                self.seconds,
                self._also,
                self.theory,
                partial(read_trace, self.folder),
                self._replay,
            )
            report.save_page(self.folder, page)
        except OSError as error:
            raise BadInput(f"cannot write the report to {self.folder}: {error.strerror}") from None

    def save_figures(self, width: str = "single") -> list[Path]:
        """Writes the single figures that a paper needs into `paper/`; returns their paths.

        Args:
            width: `single` or `double`: of one column, or of two.

        Raises:
            BadInput: there is no such width, or the folder cannot be written to.
        """
        assert self.folder is not None
        if width not in report.WIDTHS:
            raise unknown("width", width, report.WIDTHS)
        folder = self.folder / report.PAPER
        try:
            folder.mkdir(exist_ok=True)
            return report.save_paper(report.draw_paper(*self._pictured, width=width), folder)
        except OSError as error:
            raise BadInput(f"cannot write the figures to {folder}: {error.strerror}") from None


def python_objects(config: Mapping[str, Any]) -> dict[str, str]:
    """What was given as a Python object, which a config can only name: argument -> its name."""
    given = {key: config.get(key) for key in ("model", "task")}
    return {
        key: value["python"]
        for key, value in given.items()
        if isinstance(value, Mapping) and "python" in value
    }


def _with_clipper(pick: Pick, space: Space, config: Mapping[str, Any]) -> Pick:
    """The pick with the clipper of its row and what that clips by, where it is not `norm`."""
    given = config.get("clipper", "norm")  # A folder of an older version says nothing of it.
    chosen = given if isinstance(given, Mapping) else {"name": given}
    name = str(pick.hyperparameters.get("clipper", chosen["name"]))
    if pick.lr is None or name == "norm":
        return pick
    _, hyper = clipper.build(**(chosen if name == chosen["name"] else {"name": name}))
    kept = {k: v for k, v in pick.hyperparameters.items() if k != "clip_norm" or k in space.axes}
    return replace(pick, hyperparameters={**kept, "clipper": name, **hyper, **kept})


def _with_drift(pick: Pick, region: Region, config: Mapping[str, Any], folder: Path) -> Pick:
    """The pick with a warning when the edge of its row moves with the length of the run."""
    values = {axis.name: pick.hyperparameters[axis.name] for axis in region.space.row_axes}
    load = partial(whole_curves, folder)
    warmup = int(config.get("warmup_steps") or 0)
    drift = find_drift(region.space, region.records, values, load, warmup)
    if drift is None or not drift.is_moving:
        return pick
    return replace(pick, warnings=(*pick.warnings, str(drift)))


def whole_curves(folder: Path, record: Record) -> Array | None:
    """The (5, T) curves of a record; None when they are not there, torn, or of another form."""
    try:
        curves = read_trace(folder, record)
    except (OSError, ValueError, EOFError):
        return None
    is_whole = curves is not None and curves.ndim == 2 and len(curves) == len(CURVES)
    return curves if is_whole and curves.shape[1] else None  # type: ignore[union-attr]


def known_proofs(folder: Path) -> list[Proof]:
    """What the pick of a folder was put through; nothing where that cannot be read."""
    try:
        return [Proof.from_dict(plain) for plain in read_proofs(folder)]
    except (KeyError, TypeError):
        return []


def known_theory(folder: Path) -> Theory | None:
    """The edge of linear theory that a folder holds; None where that cannot be read."""
    try:
        return Theory.from_dict(read_theory(folder))
    except (KeyError, TypeError, ValueError):
        return None


def load(folder: str | Path) -> Result:
    """The result of a folder that a sweep has written, read anew from its records.

    Raises:
        BadInput: it is no such folder.
    """
    folder = Path(folder)
    config = read_config(folder)
    records = read_records(folder)
    try:
        check_margin(config["margin_decades"])
        check_count("num_planned", config["num_planned"], low=0)
        space = widened(Space.parse(config["space"]), read_extensions(config))
        notes = tuple(read_notes(folder))
        proofs = known_proofs(folder)
        known = {
            "folder": folder,
            "notes": notes,
            "theory": known_theory(folder),
            "bracketed": tuple(read_bracket(folder)),
        }
        return Result.find(space, records, config, proofs, **known)
    except KeyError as error:
        raise BadInput(f"{folder}/config.yaml lacks the key {error}") from None


def name_of(given: Any) -> str:
    """The name of a choice that is given as a name, a mapping or a Python object."""
    if isinstance(given, Mapping):
        target = given.get("target") or given.get("python") or ""
        # Of `package.module:Net` a reader knows the last word.
        return target.rpartition(":")[2].rpartition(".")[2] or str(given.get("name"))
    return str(given)
