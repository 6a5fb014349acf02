import math
from collections import Counter

import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task.text import Text


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abracadabra é!", encoding="utf-8")
    return path


def test_a_window_starts_anywhere_and_its_target_is_one_step_on(file):
    task = Text(str(file), length=4)
    assert task.vocabulary == " !abcdré"
    assert task.num_examples == 10
    inputs, targets = task.batch(torch.tensor([[0, 3], [9, 1]]))
    assert inputs.shape == targets.shape == (2, 2, 4)

    def read(tokens):
        return "".join(task.vocabulary[token] for token in tokens)

    assert [read(window) for window in inputs.flatten(0, 1)] == ["abra", "acad", "ra é", "brac"]
    assert [read(window) for window in targets.flatten(0, 1)] == ["brac", "cada", "a é!", "raca"]


def test_the_last_window_ends_with_the_text(file):
    task = Text(str(file), length=4)
    _, targets = task.batch(torch.tensor([task.num_examples - 1]))
    assert targets[0, -1] == task.tokens_T[-1]


def test_default_text_is_english_and_its_blind_loss_the_unigram_entropy():
    task = Text()
    text = "".join(task.vocabulary[token] for token in task.tokens_T)
    assert " the " in text and len(text) > 100_000
    counts = Counter(text)
    expected = -sum(n / len(text) * math.log(n / len(text)) for n in counts.values())
    assert task.blind_loss == pytest.approx(expected, abs=1e-9)
    assert 3 < task.blind_loss < 3.5 < math.log(len(task.vocabulary))
    # The best blind logits are the log frequencies, and reach nearly this loss on a part of it.
    logits_V = torch.tensor([math.log(counts[c] / len(text)) for c in task.vocabulary])
    _, targets = task.batch(torch.arange(0, task.num_examples, 320))
    logits_BLV = logits_V.expand(*targets.shape, -1)
    assert task.criterion(logits_BLV, targets).item() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is too short: 0 characters"),
        (b"abcde", "is too short: 5 characters, 5 of them different; windows of 4 need at least 6"),
        (b"a" * 99, "is too short: 99 characters, 1 of them different"),
        (b"abc\xff\xfe" * 9, r"is not UTF-8 text \(byte 3\): give a text file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as refusal:
        Text(str(path), length=4)
    assert f"task.path={path} " in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(BadInput, match="cannot be read") as refusal:
            Text(str(path))
        assert f"task.path={path} " in str(refusal.value)
    with pytest.raises(BadInput, match="task.path=3 cannot be read"):
        Text(3)  # type: ignore[arg-type]


def test_a_length_below_one_is_refused():
    with pytest.raises(BadInput, match="task.length=0 is not allowed"):
        Text(length=0)


def test_a_length_beyond_the_default_text_is_what_is_at_fault():
    with pytest.raises(BadInput, match=r"task\.length=1000000 is too long for the default text of"):
        Text(length=10**6)
