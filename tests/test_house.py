"""The rules of the house (CONTRIBUTING.md) that a machine can hold."""

from __future__ import annotations

import ast
import importlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "stabsweep"
CONF = ROOT / "conf"

MAX_LINES = 400
MAX_MEDIAN_LINES = 150
MAX_PUBLIC_NAMES = 23
MIRRORED = (
    "model",
    "task",
    "optimizer",
    "clipper",
    "engine",
    "executor",
    "sampler",
    "pruner",
    "log",
)
VAGUE = {"utils", "util", "helpers", "helper", "common", "core", "misc"}
# In pieces, so that this file does not name what it forbids.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("conda", "anaconda", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    )
]

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def tracked_texts() -> Iterator[tuple[Path, str]]:
    """The project's own text files: what git tracks or would add, or all without git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in shown.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for top in (PACKAGE, CONF, ROOT / "tests") for p in top.rglob("*")]
        paths += [p for p in ROOT.iterdir() if p.is_file()]
    for path in sorted(set(paths)):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if b"\0" not in data:
                yield path, data.decode("utf-8", errors="replace")


# ------------------------------------------------------------------------------ size, names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    assert num_lines(path) <= MAX_LINES


def test_the_median_file_is_short() -> None:
    sizes = [num_lines(p) for p in MODULES if not p.name.startswith("__")]
    assert statistics.median(sizes) <= MAX_MEDIAN_LINES, sorted(sizes)


def test_no_file_is_named_for_nothing_in_particular() -> None:
    vague = [name_of(p) for p in PACKAGE.rglob("*") if p.stem.strip("_") in VAGUE]
    assert not vague, f"name the one concept that each holds: {vague}"


# ------------------------------------------------------------------------------ conf = code


@pytest.mark.parametrize("group", MIRRORED)
def test_conf_mirrors_code(group: str) -> None:
    conf, code = CONF / group, PACKAGE / group
    assert conf.is_dir(), f"stabsweep/{group}/ has no conf/{group}/"
    assert code.is_dir(), f"conf/{group}/ has no stabsweep/{group}/"
    choices = {p.stem for p in conf.glob("*.yaml")}
    modules = {p.stem for p in code.glob("*.py") if not p.stem.startswith("_")}
    modules |= {p.parent.name for p in code.glob("[!_]*/__init__.py")}
    assert choices, f"conf/{group}/ is empty"
    assert choices == modules, f"without a twin in conf/{group} or stabsweep/{group}"


# ------------------------------------------------------------------------------ public names


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Public classes and functions of a module, and the public methods of its public classes."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, *functions)) or node.name.startswith("_"):
            continue
        yield node.name, node
        for item in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(item, functions) and (
                not item.name.startswith("_") or item.name in ("__init__", "__call__")
            ):
                yield f"{node.name}.{item.name}", item


def decorators(node: ast.AST) -> set[str]:
    return {ast.unparse(d).split(".")[-1] for d in getattr(node, "decorator_list", [])}


def lacks(node: ast.AST, is_method: bool) -> list[str]:
    """What a reader misses at a public definition."""
    missing = []
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    explained_elsewhere = node.name.startswith("__") or decorators(node) & {"overload", "setter"}
    if not ast.get_docstring(node) and not explained_elsewhere:
        missing.append("docstring")
    if isinstance(node, ast.ClassDef):
        return missing
    named = [*node.args.posonlyargs, *node.args.args]
    if is_method and "staticmethod" not in decorators(node):
        named = named[1:]
    named += [*node.args.kwonlyargs, *filter(None, (node.args.vararg, node.args.kwarg))]
    missing += [f"annotation of {a.arg}" for a in named if a.annotation is None]
    if node.returns is None and node.name != "__init__":
        missing.append("annotation of what it returns")
    return missing


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_public_name_is_documented_and_annotated(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    gaps = {
        name: missing
        for name, node in public_definitions(tree)
        if (missing := lacks(node, is_method="." in name))
    }
    assert ast.get_docstring(tree), "the module has no docstring"
    assert not gaps


def test_the_public_surface_is_one_short_sorted_list() -> None:
    package = importlib.import_module("stabsweep")
    names = package.__all__
    assert list(names) == sorted(set(names))
    assert 1 <= len(names) <= MAX_PUBLIC_NAMES
    missing = [name for name in names if not hasattr(package, name)]
    assert not missing
    undocumented = [
        name
        for name in names
        if callable(getattr(package, name)) and not getattr(package, name).__doc__
    ]
    assert not undocumented


# ------------------------------------------------------------------------------ floors, texts


def test_the_floors_hold() -> None:
    """Imports go down only, and each big library stays in its rooms (pyproject.toml)."""
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed: pip install -e '.[dev]'")
    done = subprocess.run(
        [tool, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_text_names_a_registry_or_a_place_on_somebodys_disk() -> None:
    """A checkout, a home folder and an index are the reader's own, not the project's."""
    forbidden = [*REGISTRIES, "--extra-index" + "-url", "--index" + "-url"]
    for own in (ROOT, Path.home()):
        if len(own.parts) > 2 or own.name == "root":
            forbidden.append(f"{own.as_posix()}/")
    found = [
        f"{name_of(path)}: {word}"
        for path, text in tracked_texts()
        for word in forbidden
        if word in text
    ]
    assert not found


def test_there_are_texts_to_look_at() -> None:
    names = {name_of(path) for path, _ in tracked_texts()}
    assert {"pyproject.toml", "README.md", ".ci/run", "stabsweep/records.py"} <= names
