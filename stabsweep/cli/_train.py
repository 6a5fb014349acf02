"""The verb of the real run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from stabsweep import config as configuration
from stabsweep.cli._words import FORMATS, INTERRUPTED, NOT_OK, OK, check_format, print_answer, whole
from stabsweep.errors import BadInput, unknown

USAGE = (
    "train lr=RATE [KEY=VALUE ...] | train from=SWEEP [KEY=VALUE ...] | train resume=DIR"
    "   [out=DIR] [seed=0] [policy=skip] [accumulate=1] [checkpoint_every=N] [watch_every=10]"
)
OWN = ("lr", "from", "resume", "out", "seed", "policy", "accumulate", "checkpoint_every")
OWN += ("watch_every",)
SHOWN = {"progress": "auto", "format": "text"}
OF_SWEEPS = {
    "space", "sampler", "pruner", "num_trials", "seeds", "extend", "bracket", "confirm", "stress",
    "curvature", "margin_decades", "engine", "executor", "workers", "storage",
    "log", "hydra",
}  # fmt: skip
"""What says how rates are searched for: a run has one."""


def train(words: Sequence[str]) -> int:
    """Trains one model under a guard."""
    if "-h" in words or "--help" in words:
        print(f"stabsweep {USAGE}")
        return OK
    own, shown, rest = _sorted(words)
    check_format(shown["format"], FORMATS)
    from stabsweep import training

    if "resume" in own:
        arguments = _resumed(own, rest)
    elif "from" in own:
        arguments = _picked(own, rest)
    else:
        arguments = _composed(own, rest)
    found = training.train(**arguments, progress=shown["progress"])
    print_answer(found, shown["format"])
    if found.interrupted:
        if shown["format"] == "text":
            print(f"\nInterrupted. Go on with: stabsweep train resume={found.folder}")
        return INTERRUPTED
    return OK if found.is_ok else NOT_OK


def _sorted(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The words that are the verb's own, those of the display, and those of the configuration."""
    own: dict[str, str] = {}
    shown, rest = dict(SHOWN), []
    for word in words:
        key, equals, value = word.partition("=")
        first = key.lstrip("+~").partition(".")[0]
        if not equals or (first in (*OWN, *SHOWN) and key != first):
            raise BadInput(f"usage: stabsweep {USAGE}, got {word}")
        if first in OF_SWEEPS:
            one = ", seed=N" if first == "seeds" else ""
            raise BadInput(f"{key} has no effect on a run, which has one rate: leave it away{one}")
        if key in OWN:
            own[key] = value
        elif key in SHOWN:
            shown[key] = value
        else:
            rest.append(word)
    return own, shown, rest


def _options(own: Mapping[str, str]) -> dict[str, Any]:
    """The verb's own words as arguments, without the rate and the folders."""
    counts = ("seed", "accumulate", "checkpoint_every", "watch_every")
    options: dict[str, Any] = {key: whole(key, own[key]) for key in counts if own.get(key)}
    return {**options, **({"policy": own["policy"]} if "policy" in own else {})}


def _rate(own: Mapping[str, str]) -> float:
    try:
        return float(own.get("lr", ""))
    except ValueError:
        raise BadInput(
            f"lr={own.get('lr', '')!r} is not a number: give lr=RATE, or from=SWEEP to train with "
            "the pick of a sweep"
        ) from None


def _folder(own: Mapping[str, str], name: str) -> Path:
    """Where the run is kept: as asked, or by name and time."""
    if own.get("out"):
        return Path(own["out"])
    return Path("runs") / name / time.strftime("%Y-%m-%d_%H-%M-%S")


def _composed(own: Mapping[str, str], rest: Sequence[str]) -> dict[str, Any]:
    from stabsweep.result import name_of

    lr = _rate(own)
    config = configuration.compose(list(rest))
    given = configuration.read_arguments(config)
    return {
        "given": {key: value for key, value in given.items() if key not in OF_SWEEPS},
        "lr": lr,
        "folder": _folder(own, config.name),
        "subject": f"{name_of(given['optimizer'])} on {name_of(given['model'])}",
        **_options(own),
    }


def _picked(own: Mapping[str, str], rest: Sequence[str]) -> dict[str, Any]:
    """The run of a sweep's pick; with `lr=` that of another rate in its place."""
    from stabsweep.api import asked
    from stabsweep.prediction import predict
    from stabsweep.result import load, name_of

    folder = Path(own["from"])
    folder = folder.parent if folder.name == "pick.yaml" else folder
    result = load(folder)
    pick = result.pick
    if not pick.is_ok and "lr" not in own:
        raise BadInput(
            f"from={folder} has no pick: {pick.reason} Give lr=RATE to train all the same"
        )
    cure = "train it in Python, with stabsweep.GradientGuard"
    config = asked(result.config, cure)
    known = {key: value for key, value in config.items() if key not in OF_SWEEPS}
    for word in rest:
        first = word.lstrip("+").partition("=")[0].partition(".")[0]
        if first not in known:
            raise unknown("key", first, [*known, *OWN, *SHOWN])
    words = [word.lstrip("+") for word in rest]
    merged = OmegaConf.merge(OmegaConf.create(known), OmegaConf.from_dotlist(words))
    given = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(given, dict)
    keys = dict.fromkeys(word.partition("=")[0] for word in words)
    named = {axis.name for axis in result.region.space.row_axes}
    changed = [key for key in keys if key not in {*named, "horizon", "device"}]
    axes = {}
    for axis in result.region.space.row_axes:
        if axis.name not in keys:
            value = pick.hyperparameters.get(axis.name, axis.values[0] if axis.values else axis.low)
            axes[axis.name] = {"values": [value], **({"to": axis.to} if axis.to else {})}
    lr = _rate(own) if "lr" in own else float(pick.lr or 0)
    values = {**given, **{name: axis["values"][0] for name, axis in axes.items()}}
    return {
        "given": given,
        "lr": lr,
        "axes": axes,
        "folder": _folder(own, name_of(given["model"])),
        "subject": result.subject,
        "prediction": predict(result, lr, values, changed),
        **_options(own),
    }


def _resumed(own: Mapping[str, str], rest: Sequence[str]) -> dict[str, Any]:
    """The run of a folder, as it was asked for."""
    more = [key for key in own if key != "resume"] + list(rest)
    if more:
        raise BadInput(f"resume={own['resume']} goes on as it was asked for: leave {more[0]} away")
    from stabsweep.prediction import Prediction
    from stabsweep.runlog import read_about

    folder = Path(own["resume"])
    about = read_about(folder)
    if "given" not in about:
        raise BadInput(
            f"resume={folder} is the run of a script: call it again, with "
            "GradientGuard(..., resume=True)"
        )
    keys = ("given", "lr", "axes", "seed", "subject", "policy", "accumulate", "checkpoint_every")
    arguments = {key: about[key] for key in (*keys, "watch_every")}
    prediction = Prediction.from_dict(about["predicted"]) if about.get("predicted") else None
    return {**arguments, "folder": folder, "prediction": prediction, "resume": True}
