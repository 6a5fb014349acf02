"""Makes the gallery again: all of it, or the entries that are named.

    python results/gallery/make.py [NAME ...]

An entry is a page, NAME.md. Its `sh` block is run in an empty folder, line by line; the picture
that comes of it becomes NAME.png, what the last line prints becomes the page's `text` block, and
that of every page in docs that shows the same answer (after `<!-- answer: NAME -->`). Nothing else
on a page is touched. It needs `stabsweep` as it is installed; the code is that of this checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENTRIES = sorted(path.stem for path in HERE.glob("*.md") if path.stem != "README")
PICTURES = ("map.png", "run.png", "drift.png")
"""What the picture of a sweep, of a guarded run and of two machines is called."""
HEADING = "## The answer"
STAMP = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d/?"


def main(names: list[str]) -> int:
    """Makes the entries; returns how many of them failed."""
    if unknown := sorted({*names} - {*ENTRIES}):
        print(f"no page for {', '.join(unknown)}: there are {', '.join(ENTRIES)}", file=sys.stderr)
        return 2
    failed, began = [], time.monotonic()
    for name in names or ENTRIES:
        begun = time.monotonic()
        reason = make(name)
        failed += [name] if reason else []
        print(f"{name:20}{time.monotonic() - begun:5.0f} s  {reason or 'made'}", flush=True)
    print(f"{'all':20}{time.monotonic() - began:5.0f} s  {len(failed)} failed", flush=True)
    return min(len(failed), 1)


def make(name: str) -> str | None:
    """Makes one entry; returns why it could not be made, and then has changed nothing."""
    page = HERE / f"{name}.md"
    lines = block(page.read_text(encoding="utf-8"), "sh").splitlines()
    with tempfile.TemporaryDirectory() as work:
        # Where a reader stands: the root of a checkout, of which the scripts are a part.
        (Path(work) / "results" / "gallery").mkdir(parents=True)
        for script in HERE.glob("*.py"):
            shutil.copy(script, Path(work) / "results" / "gallery")
        answer = ""
        for line in lines:
            done = subprocess.run(
                ["bash", "-c", line], cwd=work, env=environment(), stdout=subprocess.PIPE, text=True
            )
            if done.returncode not in (0, 1):  # 1 is an answer too: none, or not ok
                return f"exit code {done.returncode}: {line}"
            answer = done.stdout
        found = [path for path in Path(work).rglob("*.png") if path.name in PICTURES]
        if len(found) != 1:
            return f"it gave {len(found)} pictures ({', '.join(PICTURES)}), not one"
        save_small(found[0], HERE / f"{name}.png")
    answer = re.sub(STAMP, "...", answer).strip()
    show(page, answer)
    mark = f"<!-- answer: {name} -->\n"
    for other in (ROOT / "docs").glob("*.md"):
        before, found_mark, after = other.read_text(encoding="utf-8").partition(mark)
        if found_mark:
            other.write_text(before + mark + with_answer(after, answer), encoding="utf-8")
    return None


def environment() -> dict[str, str]:
    """This Python and this checkout, for whatever a line of a page calls."""
    paths = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(ROOT)}
    return {
        **os.environ,
        **{k: f"{v}{os.pathsep}{os.environ.get(k, '')}" for k, v in paths.items()},
    }


def block(text: str, language: str) -> str:
    """The first fenced block of a language, without its fences."""
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"a page has no {language} block:\n{text[:80]}")
    return found[1]


def show(page: Path, answer: str) -> None:
    """Puts the answer into a page of the gallery, which may not have one yet."""
    text = page.read_text(encoding="utf-8")
    if HEADING not in text:
        text = f"{text.rstrip()}\n\n{HEADING}\n\n```text\n```\n"
    page.write_text(with_answer(text, answer), encoding="utf-8")


def with_answer(text: str, answer: str) -> str:
    """A text whose first `text` block holds the answer instead of what it held."""
    parts = re.split(r"^```text\n(?:.*?)^```$", text, maxsplit=1, flags=re.MULTILINE | re.DOTALL)
    if len(parts) != 2:
        raise SystemExit(f"a page has no text block for an answer:\n{text[:80]}")
    return f"```text\n{answer}\n```".join(parts)


def save_small(picture: Path, to: Path) -> None:
    """A picture in 256 colours: enough for a map, and a third of the size in a repository.

    The colours are spread over all that occur, however seldom: an event is a few pixels.
    """
    colours = Image.open(picture).convert("RGB")
    method = Image.Quantize.MAXCOVERAGE
    colours.quantize(256, method, kmeans=2, dither=Image.Dither.NONE).save(to, optimize=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
