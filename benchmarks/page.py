"""What a report costs to write, to send and to look at, against its budgets.

    python benchmarks/page.py [--trials 2000 20000] [--repeats 5] [--out FILE]

Real sweeps of the trainability fractal (`experiment=fractal`, 200 steps a trial, two axes), their
pages written as every sweep writes its own, and opened from the disk in headless Chromium without a
network. First paint and ready count from the navigation; a click counts until what it opens has
been drawn. Medians over the repeats. Needs `pip install playwright` and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = 200
BUDGETS = {
    2_000: {"MB": 2.0, "ready": 500, "trial": 100, "cell": 250, "filter": 50},
    20_000: {
        "MB": 18.0,
        "first paint": 500,
        "ready": 1000,
        "trial": 100,
        "cell": 250,
        "filter": 50,
    },
}  # fmt: skip
"""Megabytes and milliseconds."""

TIMED = """async (what) => {
  const host = document.querySelector('[data-part="detail"]');
  const begun = performance.now();
  if (what === "filter") document.querySelector(".legend button").click();
  else if (what === "cell") {
    const map = document.querySelector('[data-part="map"]');
    const box = map.getBoundingClientRect();
    const at = { bubbles: true, clientX: box.left + box.width * (0.3 + 0.4 * Math.random()),
      clientY: box.top + box.height * (0.2 + 0.5 * Math.random()) };
    map.dispatchEvent(new MouseEvent("click", at));
  } else {
    const rows = document.querySelectorAll('[data-part="list"] tbody tr');
    rows[Math.floor(Math.random() * rows.length)].click();
  }
  if (what !== "filter")
    await new Promise((resolve) => {
      new MutationObserver((_, seen) => { seen.disconnect(); resolve(); })
        .observe(host, { childList: true });
    });
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - begun;
}"""


def swept(num_trials: int, folder: Path) -> None:
    """A real sweep of so many trials."""
    import stabsweep
    from stabsweep import config

    rows = round((num_trials / 2) ** 0.5)
    lrs, outs = (
        ",".join(f"{value:.3e}" for value in np.geomspace(1e-3, 1e6, number))
        for number in (num_trials // rows, rows)
    )
    words = [
        "experiment=fractal", f"horizon={STEPS}", f"num_trials={num_trials}", "device=cpu",
        f"space.lr=[{lrs}]", f"space.output_lr.values=[{outs}]",
    ]  # fmt: skip
    given = config.read_arguments(config.compose(words))
    stabsweep.sweep(**given, folder=folder, watcher="off")


def written(folder: Path) -> dict[str, float]:
    """Seconds of CPU for page, pictures and tables; megabytes of the page."""
    import stabsweep

    result = stabsweep.load(folder)
    began = time.process_time()
    result.save_report()
    took = time.process_time() - began
    return {"report": took, "MB": (folder / "report.html").stat().st_size / 1e6}


def opened(page: Path, repeats: int) -> dict[str, float]:
    """Milliseconds of what a reader waits for."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("STABSWEEP_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not path:
        sys.exit("no Chromium; STABSWEEP_CHROMIUM=/path/to/chromium names one")
    found: dict[str, list[float]] = {}
    with sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=path, args=flags)
        for _ in range(repeats):
            context = browser.new_context(offline=True)
            tab = context.new_page()
            tab.add_init_script(
                "new MutationObserver(() => { if (document.body?.dataset.ready === 'true' &&"
                " !window.readyAt) window.readyAt = performance.now(); })"
                ".observe(document, { subtree: true, attributes: true });"
            )
            tab.goto(page.as_uri())
            tab.locator("body[data-ready=true]").wait_for()
            paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]")
            found.setdefault("first paint", []).append(
                tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                if paint is not None
                else float("nan")
            )
            found.setdefault("ready", []).append(tab.evaluate("window.readyAt"))
            for what in ("trial", "cell", "filter"):
                found.setdefault(what, []).append(tab.evaluate(TIMED, what))
            context.close()
        browser.close()
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "page.json")
    args = parser.parse_args()
    names = ("report", "MB", "first paint", "ready", "trial", "cell", "filter")
    print(f"{'trials':>7}" + "".join(f"{name:>18}" for name in names))
    kept = []
    for num_trials in args.trials:
        with tempfile.TemporaryDirectory() as held:
            folder = Path(held) / "sweep"
            swept(num_trials, folder)
            found = written(folder) | opened(folder / "report.html", args.repeats)
        budget = BUDGETS.get(num_trials, {})
        cells = []
        for name in names:
            unit = {"report": " s", "MB": ""}.get(name, " ms")
            text = f"{found[name]:.2f}{unit}" if found[name] < 10 else f"{found[name]:.0f}{unit}"
            cells.append(f"{text} (of {budget[name]:g})" if name in budget else text)
        print(f"{num_trials:>7,}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
        kept.append({"trials": num_trials, **found, "budget": budget})
    args.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
