"""The project that a run was started in: its commit, and whether it was changed since."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

GIT_TIMEOUT_SECONDS = 2.0
"""How long `git` may take, chosen by us: a huge or remote work tree must not hold up a run."""


def read(folder: Path | None = None) -> dict[str, Any] | None:
    """`{commit, dirty}` of the project that a folder lies in; None when it lies in none.

    Files that git does not track do not make a project dirty. Nothing is written, not even git's
    own index, and no hook of the project is run.

    Args:
        folder: the current one when not given.
    """
    command = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch"]
    try:
        shown = subprocess.run(
            [*command, "--untracked-files=no"],
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if shown.returncode:
        return None
    lines = shown.stdout.decode("utf-8", errors="replace").splitlines()
    heads = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    return {
        "commit": heads[0] if heads and heads[0] != "(initial)" else None,
        "dirty": any(not line.startswith("#") for line in lines),
    }
