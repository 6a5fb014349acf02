"""The pages hold what they promise: what is written from the code is what the code says, and every
command of README, docs and gallery runs.

A command runs in this process, with settings that make it short, in a folder that holds what the
pages take for granted: a sweep (`results/...`, `A`, `B`), a guarded run (`runs/...`), a model of
one's own, data.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

import stabsweep
from stabsweep import config as configuration
from stabsweep import fingerprint
from stabsweep.cli import VERBS, _env, main
from stabsweep.errors import BadInput
from stabsweep.result import Result
from tests.test_readme import blocks

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
GALLERY = sorted((ROOT / "results" / "gallery").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, *GALLERY]

NOT_RUN = {
    "verify": "it measures every edge for a minute; tests/test_oracles.py does that",
}
"""Verbs whose commands are not run here, and why."""

# ------------------------------------------------------------------------------ written by the code


def load_script(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = load_script("docs/generate.py")


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_a_page_says_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert GENERATE.PAGES[name]() == committed, "run: python docs/generate.py"


def stated_ranges():
    """Every key with a range of numbers, beside values that lie just outside of it."""
    keys = [key for group in GENERATE.GROUPS for key in GENERATE.keys_of(group)]
    for key in [*GENERATE.top_keys(), *keys]:
        choice = re.findall(r"\((\w+)", key.default)[:1]
        outside = []
        for sign, bound in re.findall(r"(>=?|<=?) ([\d.]+)", key.allowed):
            step = {">": 0.0, "<": 0.0, ">=": -1.0, "<=": 1.0}[sign]
            outside.append(float(bound) + step)
        if span := re.match(r"([\d.e]+) to ([\d.e]+)$", key.allowed):
            outside += [float(span[1]) - 1, float(span[2]) * 10]
        if outside and "list" not in key.kind and key.kind != "mapping":
            is_whole = key.kind == "whole number"
            values = [int(value) if is_whole else value for value in outside]
            name = " ".join([key.name, *choice])
            yield pytest.param(key.name, choice, values, id=name)


@functools.cache
def arguments(*words: str):
    return configuration.read_arguments(configuration.compose(words))


@pytest.mark.parametrize("name, choice, outside", list(stated_ranges()))
def test_what_lies_outside_a_stated_range_is_refused(name, choice, outside) -> None:
    group, _, key = name.rpartition(".")
    for value in outside:
        given = dict(arguments(*(f"{group}={one}" for one in choice)))
        if group in GENERATE.CLASSES and name != "sampler.seed":
            named = given[group] if isinstance(given[group], dict) else {"name": given[group]}
            given[group] = {**named, key: value}
        else:
            given["sampler_seed" if name == "sampler.seed" else key] = value
        with pytest.raises(BadInput, match=re.escape(key)):
            stabsweep.sweep(**given, watcher="off")


def test_the_readme_is_short_and_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `stabsweep"))
    named = {word for cell in re.findall(r"`([^`]+)`", table) for word in cell.split()}
    assert {*VERBS, *_env.VERBS} <= named


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    index = (ROOT / "results" / "gallery" / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in DOCS if f"](docs/{p.name})" not in readme] == []
    assert [p.name for p in GALLERY if p.stem != "README" and f"]({p.name})" not in index] == []


def test_an_answer_is_the_same_wherever_it_is_shown() -> None:
    """The README shows some lines of the answer that docs/sweep.md explains, word for word."""
    whole = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8").split("<!-- answer: ")[1]
    shown = next(b for b in blocks((ROOT / "README.md").read_text()) if b.language == "text")
    assert set(shown.text.splitlines()) <= set(blocks(whole)[0].text.splitlines())


def test_every_entry_of_the_gallery_has_its_picture_and_command() -> None:
    make = load_script("results/gallery/make.py")
    assert make.ENTRIES
    for name in make.ENTRIES:
        text = (ROOT / "results" / "gallery" / f"{name}.md").read_text(encoding="utf-8")
        assert f"]({name}.png)" in text and make.block(text, "sh")


# ------------------------------------------------------------------------------ commands


class Command(NamedTuple):
    page: str
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        return self.words[0] if self.words and self.words[0] in VERBS else "sweep"


BEGINS = r"(?:^|&& |\$\(|- run: )\s*(?:[A-Z_]+=\S+ )?(?:python -m )?stabsweep "
WORDS = r"""((?:'[^']*'|"[^"]*"|[^'"&|();])*)"""


def commands() -> list[Command]:
    """Every command of ours in the pages, once."""
    found: dict[tuple[str, ...], Command] = {}
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            for line in (
                block.text.replace("\\\n", " ").splitlines()
                if block.language in ("sh", "yaml")
                else ()
            ):
                line = re.sub(r"(^|\s)#.*", "", line).strip()
                for typed in re.findall(BEGINS + WORDS, line):
                    words = tuple(shlex.split(typed))
                    found.setdefault(words, Command(page.stem, words))
    return list(found.values())


SWEEP = ["horizon=8", "num_trials=4", "seeds=1", "device=cpu", "progress=off"]
SWEEP += ["confirm=false", "stress=false", "curvature=false", "extend=false"]
SHORT = {
    "sweep": SWEEP,
    "check": ["horizon=8", "warmup_steps=0", "seeds=1", "device=cpu", "progress=off"],
    "train": ["horizon=8", "progress=off"],
    "resume": ["executor=local", "progress=off"],
    "curvature": ["points=2", "progress=off"],
}
"""Verb -> what makes its commands short."""
NET = ["model.width=16", "model.depth=1", "task.length=8"]
ROWS = ["model.hidden=8", "task.step=row"]
SMALL = {
    "model=transformer": NET,
    "model=rnn": ROWS,
    "experiment=clip_rnn": ["space.step.values=[row]"],
    "experiment=clippers": ROWS,
    "experiment=fractal": ["space.output_lr.values=[1,2]"],
    "experiment=post_vs_pre_ln": [*NET, "space.warmup_steps.values=[0,1]"],
    "experiment=qk_norm": NET,
    "experiment=quick": ["horizon=16"],
    "experiment=relu_rnn_overflow": ["task.length=8"],
    "experiment=spectral_rnn": ROWS,
    "experiment=warmup_adam": [*NET, "space.warmup_steps.values=[0,1]"],
}
"""A word of a command -> what makes it smaller still."""


def shortened(command: Command) -> list[str]:
    words, verb = list(command.words), command.verb
    if verb == "train" and any(word.startswith("resume=") for word in words):
        return words
    if verb == "env":
        return [*words, *(["steps=10"] if words[1] == "drift" else [])]
    given = {word.partition("=")[0] for word in words}
    more = [*SHORT.get(verb, []), *(small for word in words for small in SMALL.get(word, []))]
    if verb in ("sweep", "check"):
        # The loop needs no tracing; a group can be given once alone.
        more += [] if "engine" in given else ["engine=loop"]
        more += ["executor=local"]
    if verb == "sweep" and not given & {"space", "experiment"}:
        more += ["space.warmup_steps.values=[0,1]"]
    return [*words, *more]


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """What the pages take for granted, made once: folders and files to be copied."""
    shelf = tmp_path_factory.mktemp("shelf")
    small = ["model=mlp", "task=regression", "model.width=8", "model.depth=2", "device=cpu"]
    small += ["horizon=20", "progress=off", "batch_size=64"]
    sweep = [
        *small,
        "executor=local",
        "space=lr",
        "sampler=grid",
        "num_trials=10",
        "seeds=1",
        "confirm=false",
    ]
    assert main([*sweep, "stress=false", f"hydra.run.dir={shelf / 'A'}"]) == 0
    shutil.copytree(shelf / "A", shelf / "B")
    assert main(["train", *small, "lr=0.01", f"out={shelf / 'run'}"]) == 0
    assert main(["env", "drift", "-o", str(shelf / "there.json"), "steps=10"]) == 0
    (shelf / "my_models.py").write_text(
        "from torch import nn\n"
        "def Net(depth=2, width=8):\n"
        "    hidden = [nn.Linear(width, width) for _ in range(depth)]\n"
        "    return nn.Sequential(nn.Linear(64, width), *hidden, nn.Linear(width, 10))\n"
    )
    (shelf / "my_data.py").write_text(
        "import torch\n"
        "def batches():\n"
        "    x, y = torch.randn(30, 16, 64), torch.randint(10, (30, 16))\n"
        "    def loss(model, batch):\n"
        "        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
        "    return list(zip(x, y)), loss\n"
    )
    rng = np.random.default_rng(0)
    np.savez(shelf / "data.npz", x=rng.normal(size=(80, 64)), y=rng.integers(10, size=80))
    (shelf / "my_corpus.txt").write_text("the edge of stable training, and what lies beyond. " * 40)
    return shelf


@pytest.fixture
def desk(shelf, tmp_path, monkeypatch):
    """A fresh folder with all of it, where commands are typed."""
    desk = tmp_path / "desk"
    shutil.copytree(shelf, desk)
    monkeypatch.chdir(desk)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "path", [str(desk), *sys.path])
    # Both take seconds, and are done for the shelf: a second fingerprint here is the same, and the
    # map of one sweep is drawn as that of another. `report` and `compare` draw theirs.
    taken = fingerprint.read(desk / "there.json")
    monkeypatch.setattr(fingerprint, "take", lambda *given: taken)
    yield desk
    for name in ("my_models", "my_data"):
        sys.modules.pop(name, None)


def there(word: str) -> str:
    """A word of a verb, with the folders of the shelf in the place of those of the page."""
    return re.sub(r"(^|=)runs/\S+", r"\1run", re.sub(r"(^|=)results/\S+", r"\1A", word))


def test_there_are_commands_to_run() -> None:
    found = commands()
    assert {command.verb for command in found} == {"sweep", *VERBS}
    assert {"README", "sweep", "recipes", "mlp"} <= {command.page for command in found}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:QMCSampler is experimental")
@pytest.mark.parametrize(
    "command", commands(), ids=lambda command: f"{command.page}: {' '.join(command.words)}"
)
def test_a_command_runs(command: Command, desk: Path, monkeypatch, capsys) -> None:
    if command.verb in NOT_RUN:
        pytest.skip(NOT_RUN[command.verb])
    words = shortened(command)
    if command.verb in ("sweep", "check", "resume"):
        monkeypatch.setattr(Result, "save_report", lambda self: None)
    if command.verb != "sweep":
        words = [word if word.startswith("out=") else there(word) for word in words]
    # 1 is an answer too: none, or not ok; 3 is undecided.
    code = main(words)
    assert code in (0, 1, 3), capsys.readouterr().err


def test_the_workflow_of_the_recipes_is_yaml_that_fails_where_the_check_does() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (block,) = [b for b in blocks(text) if b.language == "yaml"]
    (job,) = yaml.safe_load(block.text)["jobs"].values()
    (script,) = [s["run"] for s in job["steps"] if "stabsweep check" in s.get("run", "")]
    for code, expected in ((0, 0), (1, 1), (2, 2), (3, 0)):
        fake = f"stabsweep() {{ return {code}; }}\n{script}"
        assert subprocess.run(["bash", "-ec", fake], capture_output=True).returncode == expected
