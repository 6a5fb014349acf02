"""The README and the pages in docs keep their promises: Python runs, pictures and links exist.

Python blocks of a page run in order, in one namespace, in an empty folder. Keep them small there;
what a reader should not wait for goes into an `sh` block, whose commands `tests/test_docs.py` runs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
PAGES = [
    README,
    *sorted((README.parent / "docs").glob("*.md")),
    *sorted((README.parent / "results" / "gallery").glob("*.md")),
]
TEST_MARK = "<!-- ci: test -->"


class Block(NamedTuple):
    """A fenced block: its language, the line before its first (from 1), and its text."""

    language: str
    line: int
    text: str


def blocks(text: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[1], text.count("\n", 0, m.start(2)), m[2]) for m in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_is_closed_and_names_its_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= {"python", "sh", "text", "yaml", "json"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = [b for b in blocks(page.read_text(encoding="utf-8")) if b.language == "python"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in code:
        tree = ast.increment_lineno(ast.parse(block.text, str(page)), block.line)
        exec(compile(tree, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_into_a_page_finds_its_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for target, anchor in links:
        text = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        # As GitHub makes them.
        slugs = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
        assert anchor in slugs, f"{target} has no heading {anchor}"


def test_ci_finds_the_one_test_command() -> None:
    """`.ci/run` takes the block after the mark, so README and CI cannot drift apart."""
    text = README.read_text(encoding="utf-8")
    assert text.count(TEST_MARK) == 1
    after = text.split(TEST_MARK)[1].lstrip("\n")
    assert after.startswith("```sh\n")
    command = blocks(after)[0].text
    assert "pip install" in command and "pytest" in command
    assert TEST_MARK in (README.parent / ".ci" / "run").read_text(encoding="utf-8")
