"""A sweep with Hydra overrides: what is run when no verb is given."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from stabsweep import config as configuration
from stabsweep.cli._words import FORMATS, INTERRUPTED, NOT_OK, OK, check_format, print_result
from stabsweep.errors import BadInput


def sweep(words: Sequence[str]) -> int:
    """Composes the configuration and sweeps with it, once or for every job of `-m`."""
    # Hydra's parser takes no flag between two overrides.
    words = sorted(words, key=lambda word: word not in ("-m", "--multirun"))
    words = configuration.read_overrides(words)
    configuration.register()
    existing = _existing_folders(words)
    codes: list[int] = []
    errors: list[BadInput] = []

    def job(config: DictConfig) -> float:
        try:
            code, loss = _run_job(config, existing)
        except BadInput as error:
            # Raised here Hydra would print lines of its own; the other jobs of `-m` go on.
            errors.append(error)
            return math.nan
        if code == INTERRUPTED:
            # Out of Hydra's outer loop as well: its other jobs must not begin.
            raise KeyboardInterrupt
        codes.append(code)
        return loss

    # Without it Hydra prints a traceback of its own and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [sys.argv[0], *words]
    wrapped = hydra.main(
        version_base="1.3",
        config_path=str(configuration.find_folder()),
        config_name="config",
    )(job)
    wrapped()
    if errors:
        raise errors[0]
    return max(codes, default=OK)


def _run_job(config: DictConfig, existing: Collection[Path]) -> tuple[int, float]:
    """One sweep with a composed configuration; its exit code, and the pick's loss."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        arguments = configuration.read_arguments(config)
        check_format(config.format, FORMATS)
        from stabsweep import api

        result = api.sweep(**arguments, folder=_shown(folder), watcher=config.progress)
    except (BadInput, OmegaConfBaseException) as error:
        # Hydra makes the folder before anything can be checked.
        _remove_empty(folder, existing)
        raise BadInput(configuration.one_line(error)) from error
    print_result(result, config.format)
    loss = result.pick.final_loss
    code = INTERRUPTED if result.interrupted else OK if result.pick.is_ok else NOT_OK
    return code, math.inf if loss is None else loss


def _shown(folder: Path) -> Path:
    """The folder as seen from here: shorter to read and to type."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _existing_folders(words: Sequence[str]) -> set[Path]:
    """The folders on the way to the results that are there before Hydra makes them."""
    given = [word.split("=", 1)[1] for word in words if word.startswith("hydra.")]
    ways = [Path(path).absolute() for path in ("results", "results/multirun", *given)]
    return {folder for way in ways for folder in (way, *way.parents) if folder.exists()}


def _remove_empty(folder: Path, existing: Collection[Path]) -> None:
    """Removes the folders that Hydra made for a run that did not begin."""
    folder = folder.absolute()
    try:
        while folder not in existing:
            folder.rmdir()
            folder = folder.parent
    except OSError:
        # It holds something, so it stays.
        return
