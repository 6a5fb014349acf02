"""The numerical fingerprint of a machine: taken, written to a file, read from one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stabsweep import environment
from stabsweep.errors import BadInput
from stabsweep.fingerprint import bits, ladder, trainings
from stabsweep.fingerprint.inputs import integers
from stabsweep.fingerprint.trainings import Course
from stabsweep.limits import check_count
from stabsweep.plan import find_device
from stabsweep.records import CURVES, Array

KIND, FORMAT = "stabsweep fingerprint", 1
"""What the file says that it is, and the version of its layout."""

NUM_AGAIN = 20
"""Steps of a training that are run twice. Ours: what is not repeatable shows in the first."""

MAX_STEPS = 10_000

Key = tuple[str, str]
"""An operation or a model, and a precision."""


class Output(NamedTuple):
    """What an operation gave.

    Attributes:
        sha256: of all its bits.
        size: how many numbers.
        values: some of them, see `bits.kept`.
    """

    sha256: str
    size: int
    values: Array


@dataclass(frozen=True)
class Fingerprint:
    """What a machine computes from inputs that are the same everywhere.

    Attributes:
        time: when it was taken, ISO 8601, UTC.
        device: where, with the card's name.
        num_steps: of each training.
        environment: see `stabsweep.environment`.
        inputs: SHA-256 of a draw: the inputs are the same where it is.
        operations: the ladder's outputs.
        tf32: what the matmul would give in TF32, at the places of its kept values.
        courses: the trainings.
        repeated: operation or training -> relative error of a second run in the same process, 0
            where it was bitwise the same.
        seconds: how long it took.
    """

    time: str
    device: str
    num_steps: int
    environment: Mapping[str, Any]
    inputs: str
    operations: Mapping[Key, Output]
    tf32: Array
    courses: Mapping[Key, Course]
    repeated: Mapping[Key, float]
    seconds: float

    @property
    def is_on_gpu(self) -> bool:
        """Whether it was taken on a GPU."""
        return not self.device.startswith("cpu")

    @property
    def digest(self) -> str:
        """One word for all of it: the same on two machines, all numbers are."""
        words = [f"{key}{output.sha256}" for key, output in sorted(self.operations.items())]
        for key, course in sorted(self.courses.items()):
            words.append(f"{key}{bits.digest(course.curves)}{sorted(course.weights.items())}")
        return bits.digest_text("".join(words))

    @property
    def unrepeated(self) -> dict[Key, float]:
        """What came out otherwise at a second run, the largest error first."""
        apart = {key: error for key, error in self.repeated.items() if error}
        return dict(sorted(apart.items(), key=lambda item: -item[1]))

    def save(self, path: str | Path) -> Path:
        """Writes it as JSON, whole or not at all; numbers that count by their bits.

        Raises:
            BadInput: the file cannot be written.
        """
        path = Path(path)
        part = path.with_name(path.name + ".part")
        try:
            part.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None
        return path

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; numbers are hex digits of their bits, of the kept ones at most."""
        return {
            "kind": KIND,
            "format": FORMAT,
            "time": self.time,
            "device": self.device,
            "num_steps": self.num_steps,
            "seconds": self.seconds,
            "digest": self.digest,
            "inputs": self.inputs,
            "environment": dict(self.environment),
            "operations": [
                {
                    "name": name,
                    "precision": precision,
                    "sha256": output.sha256,
                    "size": output.size,
                    "bits": bits.to_hex(output.values),
                }
                for (name, precision), output in self.operations.items()
            ],
            "matmul_in_tf32": bits.to_hex(self.tf32),
            "trainings": [
                {
                    "model": name,
                    "precision": precision,
                    "data": course.data,
                    "initial_loss": course.initial_loss.hex(),
                    "blind_loss": (course.blind_loss or math.nan).hex(),
                    "displacement": course.displacement.hex(),
                    "curves": dict(zip(CURVES, map(bits.to_hex, course.curves), strict=True)),
                    "weights": [
                        {"steps": steps, "sha256": sha256, "norm": norm.hex()}
                        for steps, (sha256, norm) in course.weights.items()
                    ],
                }
                for (name, precision), course in self.courses.items()
            ],
            "repeated": [
                {"name": name, "precision": precision, "relative_error": error}
                for (name, precision), error in self.repeated.items()
            ],
        }


def take(
    device: str = "auto",
    num_steps: int = trainings.NUM_STEPS,
    watch: Callable[[str], None] = lambda name: None,
) -> Fingerprint:
    """The fingerprint of this machine, now; it takes some 15 seconds on one core.

    Args:
        device: `auto`, `cpu`, `cuda`, ...
        num_steps: of each training, 10 or more.
        watch: told what is being computed.

    Raises:
        BadInput: there is no such device.
    """
    check_count("steps", num_steps, 10, MAX_STEPS)
    began, place = time.perf_counter(), find_device(device)
    operations: dict[Key, Output] = {}
    courses: dict[Key, Course] = {}
    repeated: dict[Key, float] = {}
    for operation in ladder.LADDER:
        watch(operation.name)
        for precision, dtype in bits.DTYPES.items():
            first, second = (bits.as_array(operation.run(place, dtype)) for _ in range(2))
            key = operation.name, precision
            operations[key] = Output(bits.digest(first), first.size, bits.kept(first))
            repeated[key] = _error_of_second(first, second)
    for recipe in trainings.RECIPES:
        for precision in bits.DTYPES:
            watch(f"{recipe.name} in {precision}")
            key = recipe.name, precision
            course = courses[key] = trainings.train(recipe, precision, place, num_steps)
            again = trainings.train(recipe, precision, place, num_steps, num_run=NUM_AGAIN)
            first = course.curves[0, : again.curves.shape[1]]
            repeated[key] = _error_of_second(first, again.curves[0])
    card = f" {torch.cuda.get_device_name(place)}" if place.type == "cuda" else ""
    return Fingerprint(
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        f"{place}{card}",
        num_steps,
        environment.take(),
        _inputs(),
        operations,
        bits.kept(bits.as_array(ladder.matmul_in_tf32())),
        courses,
        repeated,
        time.perf_counter() - began,
    )


def read(path: str | Path) -> Fingerprint:
    """The fingerprint that `Fingerprint.save` wrote.

    Raises:
        BadInput: it cannot be read, or is something else.
    """
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        cure = "is it cut off? take it again with stabsweep env drift -o FILE"
        raise BadInput(f"{path} is no JSON ({error}): {cure}") from None
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        is_snapshot = isinstance(plain, dict) and {"python", "threads", "versions"} <= set(plain)
        what = "an environment without numbers" if is_snapshot else "no fingerprint"
        raise BadInput(f"{path} is {what}: give a file that stabsweep env drift -o FILE wrote")
    if plain.get("format") != FORMAT:
        raise BadInput(
            f"{path} has format {plain.get('format')}, this stabsweep reads {FORMAT}: take it "
            "again with the same version"
        )
    try:
        return _from_dict(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{path} is damaged ({type(error).__name__}: {error}): take it again with stabsweep "
            "env drift -o FILE"
        ) from None


def _from_dict(plain: Mapping[str, Any]) -> Fingerprint:
    operations = {
        _key(row["name"], row["precision"]): Output(
            str(row["sha256"]), int(row["size"]), bits.from_hex(row["bits"], row["precision"])
        )
        for row in plain["operations"]
    }
    for key, output in operations.items():
        if not 0 < len(output.values) == min(output.size, bits.NUM_KEPT):
            raise ValueError(f"{len(output.values)} values of {' '.join(key)}")
    courses = {
        _key(row["model"], row["precision"]): _course(row, int(plain["num_steps"]))
        for row in plain["trainings"]
    }
    return Fingerprint(
        str(plain["time"]),
        str(plain["device"]),
        int(plain["num_steps"]),
        dict(plain["environment"]),
        str(plain["inputs"]),
        operations,
        bits.from_hex(plain["matmul_in_tf32"], "fp32"),
        courses,
        {
            _key(row["name"], row["precision"]): float(row["relative_error"])
            for row in plain["repeated"]
        },
        float(plain["seconds"]),
    )


def _key(name: Any, precision: Any) -> Key:
    if precision not in bits.TYPES:
        raise ValueError(f"precision {precision}")
    return str(name), str(precision)


def _course(row: Mapping[str, Any], num_steps: int) -> Course:
    curves = np.stack([bits.from_hex(row["curves"][name], row["precision"]) for name in CURVES])
    if curves.shape[1] != num_steps:
        raise ValueError(f"{curves.shape[1]} steps of {row['model']} instead of {num_steps}")
    blind = float.fromhex(row["blind_loss"])
    return Course(
        curves,
        float.fromhex(row["initial_loss"]),
        None if math.isnan(blind) else blind,
        float.fromhex(row["displacement"]),
        str(row["data"]),
        {
            int(mark["steps"]): (str(mark["sha256"]), float.fromhex(mark["norm"]))
            for mark in row["weights"]
        },
    )


def _error_of_second(first: Array, second: Array) -> float:
    if bits.digest(first) == bits.digest(second):
        return 0.0
    # Below the smallest that a relative error can tell, but not the same bits.
    return max(bits.relative_error(first, second), 5e-324)


def _inputs() -> str:
    """A draw by which two machines know that they had the same inputs."""
    return bits.digest(integers("probe", 4096))
