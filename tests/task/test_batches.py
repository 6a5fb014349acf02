from __future__ import annotations

import random
from collections import UserDict, namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import stabsweep
from stabsweep.engine import Cohort, Loop, build
from stabsweep.errors import BadInput
from stabsweep.task import Batches, BatchOrder, CannotStack
from tests.laws import assert_close, assert_same, make_setup, make_trials, train
from tests.test_api import Witness

D, B = 6, 8
TRIALS = make_trials({"lr": 0.05}, {"lr": 0.02}, {"lr": 0.01, "clip_norm": 0.1}, {"lr": 0.1})
HORIZON = 12


def rows(num_batches, size=B, seed=0, last=None):
    """Batches of a dict: inputs, labels, and what is not the same thing in every batch format."""
    rng = np.random.default_rng(seed)
    sizes = [size] * num_batches
    if last:
        sizes[-1] = last
    return [
        {
            "x": torch.from_numpy(rng.normal(size=(n, D))).float(),
            "more": [rng.normal(size=(n,)), (torch.arange(n) % 3,)],
            "mode": "train",
        }
        for n in sizes
    ]


def loss(model, batch):
    x = batch["x"] * batch["more"][0].unsqueeze(-1)
    assert batch.pop("mode") == "train"
    return F.cross_entropy(model(x), batch["more"][1][0])


def net():
    return nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, 3))


def setup_of(task, dtype=torch.float64, horizon=HORIZON, build_model=net):
    task.read(horizon)
    setup = make_setup("mlp", "sgd", dtype=dtype, batch_size=1, horizon=horizon)
    return replace(setup, task=task.to("cpu", dtype), build_model=build_model)


def leaf(batch):
    return batch["x"]


# ------------------------------------------------------------------------------ what is kept


@pytest.mark.parametrize("memory_gb", [None, 0])
def test_a_batch_comes_back_as_it_was_given(memory_gb):
    given = rows(5)
    task = Batches(given, loss, memory_gb=memory_gb)
    task.read(5)
    for number, before in enumerate(given):
        found = task.batch(torch.tensor([number]))
        assert list(found) == ["x", "more", "mode"] and found["mode"] == "train"
        torch.testing.assert_close(found["x"], before["x"], rtol=0, atol=0)
        np.testing.assert_array_equal(found["more"][0], before["more"][0])
        assert found["more"][0].dtype == torch.float64
        assert isinstance(found["more"], list) and isinstance(found["more"][1], tuple)
    index_KB = torch.tensor([[4], [0], [4]])
    together = task.batch(index_KB)
    assert together["x"].shape == (3, B, D) and together["more"][1][0].shape == (3, B)
    for k, index_B in enumerate(index_KB):
        assert torch.equal(together["x"][k], leaf(task.batch(index_B)))
    assert task.batch(torch.zeros(2, 3, 1, dtype=torch.int64))["x"].shape == (2, 3, B, D)


@pytest.mark.parametrize("memory_gb", [None, 0])
def test_a_moved_task_has_floats_in_the_type_and_the_rest_as_it_was(memory_gb):
    task = Batches(rows(3), loss, memory_gb=memory_gb)
    task.read(3)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for index in (torch.tensor([1]), torch.tensor([[1], [2]])):
            found = task.to("cpu", dtype).batch(index)
            assert found["x"].dtype == found["more"][0].dtype == dtype
            assert found["more"][1][0].dtype == torch.int64
    assert task.batch(torch.tensor([1]))["x"].dtype == torch.float32


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.float16, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize("shape", [(), (0, 3), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_files_hold_every_type_and_shape_bit_by_bit(dtype, shape):
    given = [(torch.randn(shape) * 3).to(dtype) for _ in range(4)]
    in_memory, in_files = (Batches(given, loss, memory_gb=gb) for gb in (None, 0))
    in_memory.read(4)
    in_files.read(4)
    assert (in_files._kept.folder is None) == (given[0].numel() == 0)
    for index in (torch.tensor([2]), torch.tensor([[3], [1], [1]])):
        assert torch.equal(in_memory.batch(index), in_files.batch(index))
    assert torch.equal(in_memory.batch(torch.tensor([2])), given[2])


Pair = namedtuple("Pair", ["inputs", "targets"])


def test_files_may_hold_what_is_empty():
    given = [{"x": torch.ones(2) * n, "none": torch.empty(0, 3)} for n in range(3)]
    task = Batches(given, loss, memory_gb=0)
    task.read(3)
    found = task.batch(torch.tensor([[2], [1]]))
    assert found["x"][:, 0].tolist() == [2, 1] and found["none"].shape == (2, 0, 3)


def test_mappings_become_dicts_and_named_tuples_stay():
    given = [
        UserDict(pair=Pair(np.ones(2) * n, torch.tensor(n)), scale=np.float32(n)) for n in range(3)
    ]
    task = Batches(given, loss)
    task.read(3)
    found = task.batch(torch.tensor([[2], [1]]))
    assert type(found) is dict and type(found["pair"]) is Pair
    assert found["pair"].targets.tolist() == found["scale"].tolist() == [2, 1]
    assert "pair.inputs (2) float64, pair.targets () int64, scale () float32" in task.note


def test_a_loader_may_use_its_memory_again():
    def loader():
        buffer = torch.zeros(2)
        for n in range(3):
            yield buffer.fill_(n)

    task = Batches(loader, loss)
    task.read(3)
    found = [task.batch(torch.tensor([n])) for n in range(3)]
    assert [batch[0].item() for batch in found] == [0, 1, 2]
    found[1].fill_(9)
    assert task.batch(torch.tensor([1]))[0] == 1


def test_a_packed_sequence_is_a_batch_too():
    rows = [nn.utils.rnn.pack_sequence([torch.ones(3, 2) * n, torch.ones(2, 2)]) for n in range(3)]
    task = Batches(rows, loss)
    task.read(3)
    found = task.batch(torch.tensor([2]))
    assert type(found) is nn.utils.rnn.PackedSequence and torch.equal(found.data, rows[2].data)


def test_the_graph_of_a_batch_is_not_kept():
    task = Batches([torch.ones(2, requires_grad=True) * 2], loss)
    task.read(1)
    assert not task.batch(torch.tensor([0])).requires_grad


def test_files_go_with_the_task():
    task = Batches(rows(4), loss, memory_gb=0)
    task.read(4)
    moved = task.to("cpu", torch.float64)
    folder = Path(task._kept.folder)
    assert f"GB, kept in {folder}" in task.note and len(list(folder.iterdir())) == 3
    del task
    assert folder.exists() and leaf(moved.batch(torch.tensor([3]))).shape == (B, D)
    del moved
    assert not folder.exists()


def test_the_disk_is_taken_when_the_memory_is_full(monkeypatch):
    monkeypatch.setattr("stabsweep.task._kept.LEAST_GB", 0)
    monkeypatch.setattr("stabsweep.task._kept._free_bytes", lambda: 4 * 1000.0)
    # 8 x 6 x 4 + 8 x 8 + 8 x 8 bytes a batch: three fit into a quarter of 4,000.
    small, large = Batches(rows(3), loss), Batches(rows(20), loss)
    small.read(20)
    large.read(20)
    assert small._kept.folder is None and large._kept.folder is not None
    for number, before in enumerate(rows(20)):
        assert torch.equal(leaf(large.batch(torch.tensor([number]))), before["x"])


def test_a_full_disk_gets_one_line_with_the_cure(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stabsweep.task._leaf.Leaf.spill", full)
    with pytest.raises(
        BadInput, match=r"GB of batches do not fit into .*\(No space .*: lower hori"
    ):
        Batches(rows(3), loss, memory_gb=0).read(3)


def test_free_memory_is_known():
    from stabsweep.task._kept import _free_bytes

    assert 1e6 < _free_bytes() < 1e15


# ------------------------------------------------------------------------------ what is read


class Counting:
    """A loader that knows how much of it was read."""

    def __init__(self, given):
        self.given, self.num_begun, self.num_read = given, 0, 0

    def __iter__(self):
        self.num_begun += 1
        for batch in self.given:
            self.num_read += 1
            yield batch


def test_no_more_is_read_than_trials_have_steps():
    def endless():
        number = 0
        while True:
            yield torch.full((2,), float(number))
            number += 1

    loader = Counting(endless())
    task = Batches(loader, loss)
    task.read(7)
    assert task.num_examples == loader.num_read == 7
    assert task.note == "task batches: 7 batches of (2) float32"


def test_what_ends_earlier_is_repeated_and_a_last_smaller_one_left_out():
    task = Batches(rows(5, last=3), loss)
    task.read(20)
    assert task.num_examples == 4
    assert task.note == (
        "task batches: 4 batches of x (8, 6) float32, more.0 (8) float64, more.1.0 (8) int64; "
        "the last, smaller one is left out; repeated every 4 steps"
    )
    # Whether it is the last is not known from the number of steps.
    task = Batches(rows(5, last=3), loss)
    task.read(5)
    assert task.num_examples == 4 and not task._kept.is_ragged
    task = Batches(rows(5, last=3) + rows(2), loss)
    task.read(5)
    assert task.num_examples == 5 and task._kept.is_ragged
    task = Batches(rows(5, last=9), loss)
    task.read(9)
    assert task.num_examples == 5 and task._kept.is_ragged


def test_a_loader_is_read_again_only_for_more_steps():
    loader = Counting(rows(10))
    task = Batches(loader, loss)
    for horizon, num_examples, num_begun in [
        (4, 4, 1),
        (4, 4, 1),
        (3, 3, 1),
        (6, 6, 2),
        (50, 10, 3),
    ]:
        task.read(horizon)
        assert (task.num_examples, loader.num_begun) == (num_examples, num_begun), horizon
    task.read(60)
    assert (task.num_examples, loader.num_begun) == (10, 3)


def test_a_generator_is_read_once_and_a_function_that_makes_one_again():
    task = Batches((batch for batch in rows(10)), loss)
    task.read(4)
    task.read(3)
    with pytest.raises(BadInput, match="an earlier sweep has read 4 batches .* give the function"):
        task.read(5)
    again = Batches(lambda: (batch for batch in rows(10)), loss)
    again.read(4)
    again.read(5)
    assert again.num_examples == 5
    empty = (batch for batch in rows(1))
    list(empty)
    with pytest.raises(BadInput, match=r"gives no batch \(any more: a generator can be read once"):
        Batches(empty, loss).read(5)


def test_the_global_generators_neither_matter_nor_change():
    data = TensorDataset(torch.arange(100.0))

    def shuffled():
        yield from DataLoader(data, 10, shuffle=True)
        yield [torch.full((10,), random.random() + np.random.rand())]

    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
        for loader in (DataLoader(data, 10, shuffle=True), shuffled):
            task = Batches(loader, loss)
            task.read(30)
            found.append(torch.cat([task.batch(torch.tensor([n]))[0] for n in range(10)]))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert np.array_equal(np.random.get_state()[1], before[2])
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
    assert sorted(found[0].tolist()) == list(range(100)) != found[0].tolist()


@pytest.mark.slow
def test_workers_of_a_loader_change_nothing():
    data = TensorDataset(torch.arange(40.0))
    found = []
    for num_workers in (0, 2):
        task = Batches(DataLoader(data, 10, shuffle=True, num_workers=num_workers), loss)
        task.read(3)
        found.append(torch.cat([task.batch(torch.tensor([n]))[0] for n in range(3)]))
    assert torch.equal(*found)


def test_numbers_that_are_not_finite_are_told_of():
    given = rows(4)
    given[2]["x"][0, 0] = torch.nan
    given[2]["x"][1, 0] = torch.inf
    task = Batches(given, loss)
    task.read(4)
    assert "; batch 2 has 2 values that are not finite at x: if it is no mask, that is" in task.note
    assert task.note.count("batch 2") == 1


class Failing:
    def __iter__(self):
        yield from rows(3)
        raise KeyError("label")


class Opaque:
    pass


X = torch.ones(2, 3)
REFUSED = [
    ([], "the loader gives no batch: give one that does"),
    (Failing(), r"the loader fails at batch 3 \(KeyError: 'label'\)"),
    ([{"a": X}, {"b": X}], r"batch 1 has another structure than batch 0 \(b instead of a\): give"),
    ([[X], [X, X]], r"batch 1 has another structure than batch 0 \(0, 1 instead of 0\)"),
    ([{"a": X}, [X]], "batch 1 has another structure than batch 0"),
    ([X, X.double()], "batch 1 is torch.float64, batch 0 torch.float32: give every batch one type"),
    ([{"a": X}, {"a": X.long()}], "batch 1 has at a torch.int64, batch 0 torch.float32"),
    ([{"a": X}, {"a": None}], "batch 1 has at a None, batch 0 a tensor: give every batch the same"),
    (
        [[X, "one"], [X, "two"]],
        "batch 1 has at 1 something of type str, which is no tensor and not",
    ),
    ([[X, None], [X, X]], "batch 1 has at 1 something of type Tensor, which is no tensor|batch 1"),
    ([[X, Opaque()], [X, Opaque()]], "batch 1 has at 1 something of type Opaque, which is no tens"),
    ([["a"], ["a"]], "batch 0 holds no tensor, but something of type str: give tensors or arrays"),
    ([[]], "batch 0 holds no tensor, but nothing at all"),
    ([Opaque()], "batch 0 holds no tensor, but something of type Opaque"),
    ([np.array(["a"])], "batch 0 holds no tensor, but a numpy array of <U1"),
    ([X.to_sparse()], r"batch 0 is a tensor that is not dense: make it so with \.to_dense\(\)"),
]


@pytest.mark.parametrize("loader, message", REFUSED, ids=[row[-1][:30] for row in REFUSED])
def test_what_cannot_be_kept_gets_one_line_with_the_cure(loader, message):
    with pytest.raises(BadInput, match=message) as refusal:
        Batches(loader, loss).read(9)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("task=batches: ")


def test_arguments_are_checked():
    with pytest.raises(BadInput, match="loader=3 cannot be iterated: give a list or a DataLoader"):
        Batches(3, loss)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="loss=3 cannot be called: give a function of model and bat"):
        Batches([X], 3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="memory_gb=-1 is not allowed: use a number >= 0"):
        Batches([X], loss, memory_gb=-1)
    for wrong in (float("nan"), "2.3", True):
        with pytest.raises(BadInput, match="blind_loss=.* is not allowed: use a number$"):
            Batches([X], loss, blind_loss=wrong)  # type: ignore[arg-type]
    assert Batches([X], loss).blind_loss is None
    assert Batches([X], loss, blind_loss=-2).blind_loss == -2


# ------------------------------------------------------------------------------ what is trained


def test_cohort_and_loop_agree():
    setup = setup_of(Batches(rows(20), loss))
    together = train(Cohort(setup, 4), TRIALS)
    assert build("auto", setup, TRIALS, 4)[1] == "cohort: up to 4 trials as one program"
    for trial in TRIALS:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])


@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_batches_in_files_train_bit_by_bit_as_in_memory(kind):
    found = [
        train(kind(setup_of(Batches(rows(20), loss, memory_gb=gb), torch.float32), 4), TRIALS)
        for gb in (None, 0)
    ]
    assert_same(*found, bitwise=True)


def test_every_seed_sees_the_same_batches_in_an_order_of_its_own():
    seen = {}

    def remembering(model, batch):
        seen[seed].append(batch["x"][0, 0].item())
        return loss(model, batch)

    task = Batches(Counting(rows(HORIZON)), remembering)
    setup = setup_of(task)
    for seed in (0, 1):
        seen[seed] = []
        train(Loop(setup), [replace(TRIALS[0], seed=seed)])
        seen[seed] = seen[seed][-HORIZON:]
        order = BatchOrder(seed, HORIZON, 1).index(0, HORIZON)[:, 0]
        assert seen[seed] == [
            task.to("cpu", torch.float64).batch(order[t : t + 1])["x"][0, 0] for t in range(HORIZON)
        ]
    assert sorted(seen[0]) == sorted(seen[1]) and seen[0] != seen[1]
    assert task._loader.num_begun == 1


def ragged(num_batches, seed=0):
    rng = np.random.default_rng(seed)
    return [
        torch.from_numpy(rng.normal(size=(4, 2 + n % 3, D))).float() for n in range(num_batches)
    ]


def pooled(model, batch):
    return model(batch.mean(1)).square().mean()


@pytest.mark.parametrize("memory_gb", [None, 0])
def test_batches_of_several_shapes_train_one_by_one_and_the_run_says_why(memory_gb):
    task = Batches(ragged(9), pooled, memory_gb=memory_gb)
    setup = setup_of(task, torch.float32)
    assert task.note.startswith("task batches: 9 batches of (shapes differ) float32; repeated")
    for number, before in enumerate(ragged(9)):
        assert torch.equal(task.batch(torch.tensor([number])), before)
    with pytest.raises(CannotStack):
        task.batch(torch.tensor([[0], [0]]))
    engine, why = build("auto", setup, TRIALS, 4)
    assert isinstance(engine, Loop)
    assert why == "loop: batches differ in shape ((4, 2, 6), (4, 3, 6) ...)"
    assert len(train(engine, TRIALS)) == len(TRIALS)
    with pytest.raises(
        BadInput, match="engine=cohort is not possible: batches differ in shape .*; u"
    ):
        build("cohort", setup, TRIALS, 4)


def test_a_loss_may_be_the_models_own():
    class Causal(nn.Module):
        """As a language model of Hugging Face's answers."""

        def __init__(self):
            super().__init__()
            self.embedding, self.readout = nn.Embedding(7, 4), nn.Linear(4, 7)

        def forward(self, input_ids, attention_mask, labels):
            logits = self.readout(self.embedding(input_ids) * attention_mask.unsqueeze(-1))
            value = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            return SimpleNamespace(loss=value, logits=logits)

    rng = np.random.default_rng(0)
    tokens = [rng.integers(0, 7, (2, 5)) for _ in range(6)]
    given = [UserDict(input_ids=t, attention_mask=np.ones_like(t), labels=t) for t in tokens]
    task = Batches(given, lambda model, batch: model(**batch).loss)
    setup = setup_of(task, build_model=Causal)
    assert build("auto", setup, TRIALS, 4)[1].startswith("cohort")
    together = train(Cohort(setup, 4), TRIALS)
    assert_close(together[1], train(Loop(setup), [TRIALS[1]])[1])


@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_a_loss_of_one_element_is_a_scalar(kind):
    setup = setup_of(Batches(rows(3), lambda model, batch: loss(model, batch).view(1, 1)))
    plain = setup_of(Batches(rows(3), loss))
    assert_same(train(kind(setup, 4), TRIALS), train(kind(plain, 4), TRIALS), bitwise=True)


# ------------------------------------------------------------------------------ from end to end

SPACE = {"lr": {"low": 1e-2, "high": 10.0}}
TINY = {
    "optimizer": "sgd",
    "horizon": 20,
    "num_trials": 10,
    "sampler": "grid",
    "device": "cpu",
}


def losses(result):
    records = sorted(result.region.records, key=lambda record: record.trial)
    return [(record.point, record.seed, record.verdict, record.final_loss) for record in records]


def test_a_sweep_over_batches_from_python():
    seen, task = Witness(), stabsweep.Batches(rows(30), loss, blind_loss=1.1)
    result = stabsweep.sweep(lambda: net(), task, SPACE, watcher=seen, **TINY)
    assert seen.notes[0].startswith(
        "task batches: 20 batches of x (8, 6) float32, more.0 (8) float6"
    )
    assert seen.notes[1].startswith("engine cohort")
    again = stabsweep.sweep(net, task, SPACE, watcher="off", cohort_size=3, **TINY)
    assert losses(result) == losses(again)
    # A longer sweep in between changes nothing.
    stabsweep.sweep(net, task, SPACE, watcher="off", **{**TINY, "horizon": 40})
    torch.rand(3)
    third = stabsweep.sweep(net, task, SPACE, watcher="off", **TINY)
    assert losses(third) == losses(result)


@pytest.mark.parametrize(
    "given, message",
    [
        (
            lambda model, batch: model(batch["x"]),
            r"task=batches gives a loss of \(8, 3\): give one",
        ),
        (lambda model, batch: 0.5, r"task=batches gives a loss of 0\.5: give one number"),
        (
            lambda model, batch: batch["y"],
            r"model=net fails on a batch of task=batches, .*KeyError",
        ),
    ],
)
def test_a_loss_that_is_none_gets_one_line(given, message):
    with pytest.raises(BadInput, match=message):
        stabsweep.sweep(net, Batches(rows(3), given), SPACE, watcher="off", **TINY)


def test_the_size_of_batches_is_no_axis():
    space = {**SPACE, "batch_size": [4, 8]}
    with pytest.raises(
        BadInput, match="space.batch_size has no effect on task=batches, which gives"
    ):
        stabsweep.sweep(net, Batches(rows(3), loss), space, watcher="off", **TINY)


def test_a_pair_is_no_task_but_the_line_says_what_is():
    with pytest.raises(BadInput, match=r"task is a tuple: give stabsweep\.Batches\(loader, loss\)"):
        stabsweep.sweep(net, (rows(3), loss), SPACE, watcher="off", **TINY)  # type: ignore[arg-type]
