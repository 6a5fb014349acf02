"""The front door: composing, typing and reading the configuration. Nothing below knows Hydra."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf

from stabsweep.errors import BadInput, unknown
from stabsweep.limits import LIMITS


@dataclass
class Schema:
    """Keys and types of the configuration; what values mean is checked where they are used."""

    name: str = MISSING
    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    clipper: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    pruner: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    executor: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
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
    bracket: bool = MISSING
    extend: bool = MISSING
    confirm: Any = MISSING
    stress: Any = MISSING
    curvature: Any = MISSING
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


def compose(words: Sequence[str]) -> DictConfig:
    """The configuration that overrides give, without a run, a folder or a log of Hydra's.

    Raises:
        BadInput: see `read_overrides`; Hydra's own errors are left to the caller.
    """
    words = read_overrides(words)
    register()
    with initialize_config_dir(str(find_folder()), "stabsweep", version_base="1.3"):
        return hydra_compose("config", words)


def read_overrides(words: Sequence[str]) -> list[str]:
    """The overrides as Hydra takes them.

    What says clearly what it means is put into Hydra's words: a list for an axis (`space.lr=[a,b]`)
    and a whole number with an exponent (`horizon=1e3`).

    Raises:
        BadInput: an override that Hydra would answer with a traceback, or with a riddle.
    """
    groups = {path.name: path for path in find_folder().iterdir() if path.is_dir()}
    read = []
    for word in words:
        key, equals, value = word.partition("=")
        bare = key.lstrip("+")
        if not equals or key.startswith(("-", "~")):
            read.append(word)
        elif not bare:
            raise unknown("key", word, _known_keys())
        elif bare in groups:
            names = [path.stem for path in groups[bare].glob("*.yaml")]
            for name in value.split(","):
                if word not in _OFF and _NO_NAME.fullmatch(name):
                    raise unknown(bare, name, names)
            if key != bare:
                raise BadInput(f"{word} adds a second {bare}: leave the + away, {bare}={value}")
            # None of them is the default, which Hydra lets nobody spell out.
            read += [] if word in _OFF else [word]
        elif bare == "name":
            _check_name(value.strip("'\""), is_final=False)
            read.append(word)
        elif (axis := _AXIS_LIST.fullmatch(bare)) and value.lstrip().startswith("["):
            read.append(f"++{axis[1]}.values={value}")
        elif bare in _WHOLE:
            read.append(f"{key}={','.join(_as_whole(part) for part in value.split(','))}")
        else:
            read.append(word)
    return read


_FLAT: Mapping[str, Mapping[str, Any]] = {
    "engine": {"cohort_size": None, "rung_steps": None, "profile": False},
    "executor": {"workers": None},
}
"""Groups whose keys are arguments of their own: key -> value where a choice does not give it."""
_OFF = ("experiment=null", "log=null")
_NO_NAME = re.compile(r"\s*|null|true|false|[-+.\d][-+.\de]*", re.IGNORECASE)
_AXIS_LIST = re.compile(r"(space\.\w+)(?:\.values)?")
_WHOLE = {"seeds", *(key for key, kind in Schema.__annotations__.items() if kind == "int")}


def _as_whole(text: str) -> str:
    """A number without its point or exponent where it is whole; anything else as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    # More digits than these are not worth an answer that lists them.
    return str(int(number)) if abs(number) < 1e30 and number == int(number) else text


def _check_name(name: str, is_final: bool = True) -> None:
    """Whether a name can be that of a folder of results; it may have to be composed yet.

    Raises:
        BadInput: it is empty, or a path.
    """
    if not is_final and "$" in name:
        return
    if not name.strip() or name in (".", "..") or "/" in name or "\\" in name:
        raise BadInput(
            f"name={name!r} is not allowed: give one word, the name of a folder in results "
            "(hydra.run.dir=DIR writes elsewhere)"
        )


def read_arguments(config: DictConfig) -> dict[str, Any]:
    """The arguments of `stabsweep.api.sweep`, but for folder and watcher.

    Raises:
        BadInput: a choice has no name, or an unknown key.
    """
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    given: dict[str, Any] = {str(key): value for key, value in plain.items()}
    for key in given:
        if key not in Schema.__dataclass_fields__:
            hint = f"; as an axis it is space.{key}" if key in LIMITS else ""
            raise BadInput(f"{unknown('key', key, _known_keys())}{hint}")
    _check_name(given["name"])
    for key in ("name", "progress", "format"):
        given.pop(key)
    groups = ("model", "task", "optimizer", "clipper", "sampler", "pruner", "engine", "executor")
    for group in groups:
        if not isinstance(given[group], Mapping) or "name" not in given[group]:
            raise BadInput(f"{group}={given[group]!r} is no choice: see stabsweep --help")
    given["log"] = list(given["log"] or ())
    sampler = dict(given.pop("sampler"))
    given["sampler_seed"] = sampler.pop("seed", 0)
    given["sampler"] = _plain(sampler)
    given |= {group: _plain(given[group]) for group in ("clipper", "pruner")}
    for group, keys in _FLAT.items():
        choice = dict(given.pop(group))
        given[group] = choice.pop("name")
        given |= {key: choice.pop(key, default) for key, default in keys.items()}
        for key in choice:
            raise unknown(f"{group} key", key, ["name", *keys])
    return given


def _plain(choice: Mapping[str, Any]) -> Any:
    """A choice as a script would write it: its name alone when it has no arguments."""
    return choice["name"] if set(choice) == {"name"} else choice


def one_line(error: Exception) -> str:
    """What a user did wrong, in one line."""
    if isinstance(error, BadInput):
        return str(error)
    # Some of Hydra's own errors are OSErrors as well.
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        where = f" {error.filename}" if error.filename else " a file"
        return f"cannot use{where} ({error.strerror}): choose another folder (hydra.run.dir=DIR)"
    return explain(error)


def explain(error: BaseException) -> str:
    """What Hydra or OmegaConf complain of, in one line that names the key and the cure."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException):
        # Two of them are ours, see `read_overrides`.
        shown = error.override.removeprefix("++")
        key, _, value = shown.partition("=")
        if "'" in value or '"' in value:
            return f"{shown} cannot be read: look at its quotes, brackets and commas"
        calls = re.compile(r"[A-Za-z_]\w*\([^()]*\)")
        quoted = calls.sub(r"'\g<0>'", value) if calls.search(value) else f"'{value}'"
        return f'{shown} cannot be read: put the value in quotes, "{key}={quoted}"'
    if text.startswith("Error merging override") and error.__cause__ is not None:
        error = error.__cause__
        text = str(error).strip()
    for pattern, answer in _ANSWERS.items():
        found = re.search(pattern, text)
        if found:
            return answer.format(*found.groups())
    missing = re.search(r"Could not override '([^']+)'", text)
    if missing:
        key = missing.group(1)
        name = key.rsplit(".", 1)[-1]
        known = _known_keys()
        if name in LIMITS and name in key.split(".") and name.startswith("clip_"):
            cure = f"{name}=..." if name in known else f"clipper=NAME clipper.{name}=..."
            return f"{key} is not a key that can be set here: use {cure}"
        if "." in key or "@" in key or name in known:
            return f"{key} is not a key that can be set here: see stabsweep --help"
        return str(unknown("key", key, known))
    group = re.search(r"Could not (?:find|load) '([^']+)/([^']+)'", text)
    if group:
        names = [path.stem for path in (find_folder() / group.group(1)).glob("*.yaml")]
        return str(unknown(group.group(1), group.group(2), names))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    full_key = next((line.split(":", 1)[1].strip() for line in lines if "full_key:" in line), "")
    first = lines[0] if lines else type(error).__name__
    if full_key and "is not Optional" in first:
        return f"{full_key}=null is not allowed: give a value, or leave it away"
    nested = re.search(r"Value '(.*)' of type '.*' could not be converted to (\w+)", text)
    if nested:
        kind = {"Integer": "a whole number", "Float": "a number"}.get(nested.group(2), "text")
        key = full_key or first.split("'")[1]
        return f"{key}={nested.group(1)!r} is not {kind}: give {kind}"
    return f"{full_key}: {first}" if full_key else first


_ANSWERS = {
    r"Ambiguous value for argument '(.*)'": "{} is several values: [a,b] is a list, -m sweeps them",
    r"An item is already at '(.*)'": "{} is there already: leave the + away",
    r"Multiple values for (\w+)\.": "{0} is chosen twice: give one {0}=NAME",
}
"""What Hydra says -> what that means."""


def _known_keys() -> list[str]:
    return [*Schema.__dataclass_fields__, "experiment", "hydra"]
