"""Plain values in files: YAML that reads numbers as the command line does, JSON without NaN."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stabsweep.errors import BadInput


class _Reader(yaml.SafeLoader):
    """Reads `1e-3`, `1E-3`, `1e3` and `1.0e3` as numbers, as the command line does.

    PyYAML takes for a number only what has both a point and a sign in its exponent.
    """


class _Writer(yaml.SafeDumper):
    """Puts text that `_Reader` would take for a number in quotes."""


for _kind in (_Reader, _Writer):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def read_yaml(path: Path) -> Any:
    """The plain values of a YAML file.

    Raises:
        BadInput: it is not YAML.
        OSError: it cannot be read.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Reader)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{path} is not YAML: {str(error).splitlines()[0]}") from None


def save_yaml(path: Path, values: Mapping[str, Any]) -> None:
    """Writes plain values as YAML, in their order; the file is there whole or not at all."""
    text = yaml.dump(as_plain(values), Dumper=_Writer, sort_keys=False, allow_unicode=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def cut_torn_line(path: Path) -> None:
    """Cuts off a last line without its newline: what a killed process had half-written."""
    if not path.exists():
        return
    with open(path, "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def as_plain(value: Any) -> Any:
    """The value in the types that every file format knows: NumPy's numbers and tuples are gone."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def without_nan(value: Any) -> Any:
    """A plain value with None in the place of what JSON has no word for."""
    value = as_plain(value)
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
