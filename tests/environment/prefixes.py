"""Environments on disk as conda and pip leave them, and snapshots that a check can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stabsweep.environment import conda, distributions


class Prefix:
    """A folder with `conda-meta` and `site-packages`, by the documented formats of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "lib" / "python3.11" / "site-packages"
        self.site.mkdir(parents=True)

    def pip(self, name: str, version: str, installer: str | None = "pip", **more: Any) -> Prefix:
        """A package and its metadata, as an installer writes them."""
        metadata = self.site / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n")
        if installer:
            (metadata / "INSTALLER").write_text(f"{installer}\n")
        if more:
            (metadata / "direct_url.json").write_text(json.dumps(more))
        package = self.site / name
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
        return self

    def conda(
        self, name: str, version: str, build: str = "0", channel: str = "conda-forge",
        python: str = "", installer: str | None = "conda",
    ) -> Prefix:  # fmt: skip
        """A record, and the Python package that came with it, if it is one."""
        files = [f"lib/lib{name}.so"]
        if python:
            self.pip(python, version, installer)
            files.append(f"lib/python3.11/site-packages/{python}-{version}.dist-info/METADATA")
        record = {
            "build": build,
            "build_number": 0,
            "channel": f"https://conda.example.org/{channel}/linux-64",
            "depends": [],
            "files": files,
            "name": name,
            "version": version,
        }
        meta = self.folder / "conda-meta"
        meta.mkdir(exist_ok=True)
        path = meta / f"{name}-{version}-{build}.json"
        path.write_text(json.dumps(record, indent=2))
        (meta / "history").write_text("==> 2026-01-01 00:00:00 <==\n")
        return self

    def snapshot(self, torch: str = "", **more: Any) -> dict[str, Any]:
        """What `snapshot.take` would return of it, with torch of the version that is loaded."""
        return snapshot(
            distributions=distributions.read([str(self.site)]),
            conda=conda.read(self.folder),
            **({"torch": self.loaded(torch)} if torch else {}),
            **more,
        )

    def loaded(self, version: str, cuda: str | None = None) -> dict[str, Any]:
        """The part `torch` of a snapshot."""
        file = str(self.site.resolve() / "torch" / "__init__.py")
        return {"version": version, "cuda": cuda, "hip": None, "from_numpy": True, "file": file}


def snapshot(**parts: Any) -> dict[str, Any]:
    """A snapshot that no check has a word about, with other parts put in."""
    plain = {
        "format": 2,
        "time": "2026-01-01T00:00:00+00:00",
        "python": {"version": "3.11.7"},
        "platform": {"system": "Linux", "machine": "x86_64"},
        "gpu": {"cuda_available": False, "names": [], "driver": None},
        "runtimes": [],
        "switches": {"deterministic": False},
        "distributions": [],
        "conda": None,
        "lock": [{"file": "uv.lock"}],
        "variables": {},
    }
    return {**plain, **parts}
