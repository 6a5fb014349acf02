"""Known vulnerabilities of what is installed, as pip-audit tells them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.version import Version

from stabsweep.environment.finding import Finding

TIMEOUT_SECONDS = 300.0
"""How long pip-audit may take, chosen by us: it asks an index for every package."""


def find() -> list[Finding]:
    """What pip-audit finds in this environment; it asks its service over the network.

    A vulnerability changes no number: it is a warning here, with the version that mends it.
    """
    beside = _beside()
    tool = str(beside) if os.access(beside, os.X_OK) else shutil.which("pip-audit")
    if tool is None:
        return [
            Finding(
                "warning", "pip-audit", "is not installed, so nothing was audited",
                "pip install pip-audit, then again with audit=true",
            )
        ]  # fmt: skip
    try:
        done = subprocess.run(
            [tool, "--format", "json", "--progress-spinner", "off"],
            # Otherwise one that stands in an environment of its own looks at that.
            env={**os.environ, "PIPAPI_PYTHON_LOCATION": sys.executable},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        told = json.loads(done.stdout)
        # It was a bare list before version 2.4.
        dependencies = told if isinstance(told, list) else told["dependencies"]
        return _read(dependencies)
    except (OSError, subprocess.SubprocessError) as error:
        return [_failed(f"{type(error).__name__}: {error}")]
    except (ValueError, KeyError, TypeError, AttributeError):
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        return [_failed(said[-1] if said else f"exit code {done.returncode}, no answer")]


def _beside() -> Path:
    return Path(sys.executable).with_name("pip-audit")


def _failed(reason: str) -> Finding:
    return Finding("warning", "pip-audit", f"failed: {reason}", "run `pip-audit` by hand")


def _read(dependencies: list[dict[str, Any]]) -> list[Finding]:
    findings = []
    for entry in dependencies:
        holes = entry.get("vulns") or []
        if not holes:
            continue
        name = entry["name"]
        ids = ", ".join(_names(hole) for hole in holes)
        mended = [hole["fix_versions"][-1] for hole in holes if hole.get("fix_versions")]
        if mended:
            cure = f"pip install '{name}>={max(mended, key=Version)}'"
            if len(mended) < len(holes):
                cure += f", which mends {len(mended)} of them"
        else:
            cure = "no version mends it yet"
        message = f"{entry['version']} has {len(holes)} known: {ids}"
        findings.append(Finding("warning", name, message, cure))
    skipped = [entry["name"] for entry in dependencies if entry.get("skip_reason")]
    told = f"audited {len(dependencies) - len(skipped)} packages, {len(findings)} with findings"
    more = f"; not audited: {', '.join(skipped)}" if skipped else ""
    return [*findings, Finding("info", "pip-audit", told + more)]


def _names(hole: dict[str, Any]) -> str:
    """The name of a vulnerability that most people search for: its CVE, where it has one."""
    cves = [alias for alias in hole.get("aliases") or [] if alias.startswith("CVE-")]
    return cves[0] if cves else str(hole["id"])
