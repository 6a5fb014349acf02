"""The front door: composing, typing and reading the configuration. Nothing below knows Hydra."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from stabsweep.errors import BadInput, unknown

FORMATS = ("text", "json", "yaml")
"""How an answer can be printed."""


@dataclass
class Schema:
    """Keys and types of the configuration; what values mean is checked where they are used."""

    name: str = MISSING
    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    pruner: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    horizon: int = MISSING
    num_trials: int = MISSING
    seeds: Any = MISSING
    batch_size: int = MISSING
    warmup_steps: int = MISSING
    clip_norm: Any = MISSING
    schedule: str = MISSING
    init: str = MISSING
    init_gain: float = MISSING
    device: str = MISSING
    precision: str = MISSING
    lr_scales: Any = MISSING
    margin_decades: float = MISSING
    storage: Any = MISSING
    progress: str = MISSING
    format: str = MISSING


def register() -> None:
    """Makes the schema known to Hydra under the name that `conf/config.yaml` uses."""
    ConfigStore.instance().store(name="schema", node=Schema)


def find_folder() -> Path:
    """The folder of the configuration: inside the package when installed, else beside it."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def read_arguments(config: DictConfig) -> dict[str, Any]:
    """The arguments of `stabsweep.api.sweep`, but for folder and watcher.

    Raises:
        BadInput: a choice has no name, or an unknown key.
    """
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    given: dict[str, Any] = {str(key): value for key, value in plain.items()}
    for key in ("name", "progress", "format"):
        given.pop(key)
    for group in ("model", "task", "optimizer", "sampler", "pruner", "engine"):
        if not isinstance(given[group], Mapping) or "name" not in given[group]:
            raise BadInput(f"{group}={given[group]!r} is no choice: see stabsweep --help")
    sampler, engine = dict(given.pop("sampler")), dict(given.pop("engine"))
    given["engine"] = engine.pop("name")
    given["sampler_seed"] = sampler.pop("seed", 0)
    given["sampler"], given["pruner"] = _plain(sampler), _plain(given["pruner"])
    given["cohort_size"], given["rung_steps"] = engine.pop("cohort_size"), engine.pop("rung_steps")
    for key in engine:
        raise unknown("engine key", key, ["name", "cohort_size", "rung_steps"])
    return given


def _plain(choice: Mapping[str, Any]) -> Any:
    """A choice as a script would write it: its name alone when it has no arguments."""
    return choice["name"] if set(choice) == {"name"} else choice


def explain(error: BaseException) -> str:
    """What Hydra or OmegaConf complain of, in one line that names the key and the cure."""
    if str(error).startswith("Error merging override") and error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    missing = re.search(r"Could not override '([^']+)'", text)
    if missing:
        key = missing.group(1)
        name = key.rsplit(".", 1)[-1]
        known = _known_keys()
        if "." in key or "@" in key or name in known:
            return f"{key} is not a key that can be set here: see stabsweep --help"
        return str(unknown("key", key, known))
    group = re.search(r"Could not find '([^']+)/([^']+)'", text)
    if group:
        options = re.search(r"Available options in '[^']+':\s*(.*?)(?:\n\S|\Z)", text, re.DOTALL)
        names = options.group(1).split() if options else []
        return str(unknown(group.group(1), group.group(2), names))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    full_key = next((line.split(":", 1)[1].strip() for line in lines if "full_key:" in line), "")
    first = lines[0] if lines else type(error).__name__
    nested = re.search(r"Value '(.*)' of type '.*' could not be converted to (\w+)", text)
    if nested:
        kind = {"Integer": "a whole number", "Float": "a number"}.get(nested.group(2), "text")
        key = full_key or first.split("'")[1]
        return f"{key}={nested.group(1)!r} is not {kind}: give {kind}"
    return f"{full_key}: {first}" if full_key else first


def _known_keys() -> list[str]:
    return [*Schema.__dataclass_fields__, "experiment", "hydra"]
