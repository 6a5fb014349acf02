"""Models of the user's own, with what the reference models do not have."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stabsweep.engine import Cohort, Loop, build
from stabsweep.errors import BadInput
from tests.laws import NAN, assert_close, assert_same, make_setup, make_trials, train

POINTS = [
    {"lr": 0.002, "weight_decay": 0.3},
    {"lr": 0.004, "init": "xavier", "clip_norm": 0.5},
    {"lr": 0.001, "init_gain": 2.0, "weight_decay": 0.0},
]
TRIALS = make_trials(*POINTS)


def setup_of(build_model, dtype=torch.float64, rule="adamw", **how):
    return replace(make_setup("mlp", rule, dtype=dtype, **how), build_model=build_model)


class Net(nn.Module):
    """Two layers; the models below add one thing to it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10)
        self.add()

    def add(self):
        pass

    def between(self, x):
        return x.tanh()

    def forward(self, inputs):
        return self.last(self.between(self.first(inputs)))


# ------------------------------------------------------------------------------ stacked


class Frozen(Net):
    def add(self):
        self.first.requires_grad_(False)


class Unused(Net):
    def add(self):
        self.spare = nn.Linear(5, 5)


class Mask(Net):
    def add(self):
        self.register_buffer("mask", torch.arange(8) % 2)

    def between(self, x):
        return x.tanh() * self.mask


class RandomFeatures(Net):
    def add(self):
        self.register_buffer("features", torch.randn(8, 8))

    def between(self, x):
        return (x @ self.features).cos()


class FrozenAndRandom(Net):
    def add(self):
        self.scale = nn.Parameter(torch.randn(8), requires_grad=False)
        self.register_buffer("shift", torch.rand(()))

    def between(self, x):
        return (x * self.scale + self.shift).relu()


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 3, 3), nn.Linear(27, 10)

    def forward(self, inputs):
        x = self.conv(inputs.view(-1, 1, 8, 8)).relu()
        return self.last(nn.functional.max_pool2d(x, 2).flatten(1))


class BatchStatistics(Net):
    def add(self):
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)

    def between(self, x):
        return self.norm(x).relu()


class Norm(Net):
    def add(self):
        self.norm = nn.BatchNorm1d(8)

    def between(self, x):
        return self.norm(x).tanh()


class Counter(Net):
    def add(self):
        self.register_buffer("calls", torch.zeros(()))

    def between(self, x):
        self.calls += 1
        return x / self.calls


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 10)

    def forward(self, inputs):
        return self.last(self.layer(inputs.view(-1, 8, 8)).mean(1))


class FusedAttention(Net):
    def between(self, x):
        x = x.view(-1, 1, 4, 2)
        return nn.functional.scaled_dot_product_attention(x, x, x).flatten(1)


class Tied(Net):
    def add(self):
        self.middle = nn.Linear(8, 8)
        self.again = self.middle

    def between(self, x):
        return self.again(self.middle(x).tanh())


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


class Parametrized(Net):
    def add(self):
        self.middle = nn.Linear(8, 8)
        nn.utils.parametrize.register_parametrization(self.middle, "weight", Symmetric())

    def between(self, x):
        return self.middle(x).tanh()


class Twins(Net):
    """Two modules that share one weight."""

    def add(self):
        self.middle, self.back = nn.Linear(8, 8), nn.Linear(8, 8)
        self.back.weight = self.middle.weight

    def between(self, x):
        return self.back(self.middle(x).tanh())


class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.readout = nn.Embedding(30, 10), nn.Linear(10, 30, bias=False)
        self.readout.weight = self.embedding.weight

    def forward(self, inputs):
        x = self.embedding(inputs.long().clamp(0, 29)).mean(1)
        return self.readout(x)[:, :10]


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = self.make(), nn.Linear(6, 10)

    def make(self):
        return nn.GRU(8, 6, batch_first=True)

    def forward(self, inputs):
        return self.last(self.cells(inputs.view(-1, 8, 8))[0][:, -1])


class Rnn(Gru):
    def make(self):
        return nn.RNN(8, 6, batch_first=True)


class LstmCells(Gru):
    """What an nn.LSTM is, step by step."""

    def make(self):
        return nn.LSTMCell(8, 6)

    def forward(self, inputs):
        h = c = inputs.new_zeros(len(inputs), 6)
        for x in inputs.view(-1, 8, 8).unbind(1):
            h, c = self.cells(x, (h, c))
        return self.last(h)


class Attention(Net):
    """Without an axis for heads, torch takes its plain form, which stacks."""

    def between(self, x):
        x = x.view(-1, 4, 2)
        return nn.functional.scaled_dot_product_attention(x, x, x).flatten(1)


STACKING = [
    Net,
    Frozen,
    Unused,
    Mask,
    RandomFeatures,
    FrozenAndRandom,
    Conv,
    BatchStatistics,
    Norm,
    Counter,
    Encoder,
    FusedAttention,
    Tied,
    Parametrized,
    Twins,
    TiedEmbedding,
    Gru,
    Rnn,
    LstmCells,
    Attention,
]


ROUNDING = (Conv, BatchStatistics, Norm)
"""Trials lie side by side in the channels here, and torch picks the order of its sums by their
number: company may change the last bit."""


@pytest.mark.parametrize("build_model", STACKING, ids=lambda cls: cls.__name__)
def test_cohort_and_loop_agree(build_model):
    setup = setup_of(build_model)
    together = train(Cohort(setup, 3), TRIALS)
    for trial in TRIALS:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])


@pytest.mark.parametrize("build_model", STACKING, ids=lambda cls: cls.__name__)
def test_what_stacks_is_stacked(build_model):
    engine, why = build("auto", setup_of(build_model, torch.float32), TRIALS, 4)
    assert isinstance(engine, Cohort)
    assert engine.capacity == 4
    assert why == "cohort: up to 4 trials as one program"


@pytest.mark.parametrize("build_model", STACKING, ids=lambda cls: cls.__name__)
def test_a_trial_that_comes_late_has_its_own_state(build_model):
    setup = setup_of(build_model, torch.float32, "sgd")
    found, expected = train(Cohort(setup, 2), TRIALS), train(Cohort(setup, 3), TRIALS)
    assert_same(found, expected, bitwise=build_model not in ROUNDING)


@pytest.mark.parametrize("build_model", STACKING, ids=lambda cls: cls.__name__)
def test_dropping_a_trial_leaves_the_others_their_state(build_model):
    setup = setup_of(build_model, torch.float32, "sgd")
    engine = Cohort(setup, 3)
    survivors = train(engine, TRIALS, look=lambda chunks: engine.drop(0))
    assert sorted(survivors) == [1, 2]
    assert_same(survivors, train(Cohort(setup, 3), TRIALS), build_model not in ROUNDING)


@pytest.mark.parametrize("build_model", STACKING, ids=lambda cls: cls.__name__)
def test_a_neighbours_nan_never_leaks(build_model):
    setup = setup_of(build_model, torch.float32, "sgd")
    calm, beside = train(Cohort(setup, 3), TRIALS), train(Cohort(setup, 4), [NAN, *TRIALS])
    assert np.isnan(beside.pop(NAN.number)["loss"][-1])
    assert_same(beside, calm, bitwise=build_model not in ROUNDING)


@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_frozen_parameters_do_not_move_and_do_not_count(kind):
    class OnlyLast(nn.Module):
        """What `Frozen` trains, the frozen part made constant by the seed."""

        def __init__(self):
            super().__init__()
            whole = Frozen()
            self.hidden = [whole.first]
            self.last = whole.last

        def forward(self, inputs):
            with torch.no_grad():
                x = self.hidden[0].to(inputs.dtype)(inputs).tanh()
            return self.last(x)

    trial = make_trials({"lr": 0.01})
    found = train(kind(setup_of(Frozen), 1), trial)[0]
    assert_close(found, train(Loop(setup_of(OnlyLast)), trial)[0])


def test_an_unused_parameter_does_not_change_the_losses():
    class Drawn(Net):
        def add(self):
            nn.Linear(5, 5)

    found = train(Cohort(setup_of(Unused), 3), TRIALS)
    expected = train(Cohort(setup_of(Drawn), 3), TRIALS)
    for number in (0, 2):
        np.testing.assert_allclose(found[number]["loss"], expected[number]["loss"], rtol=1e-12)


# ------------------------------------------------------------------------------ one by one


class Branch(Net):
    def between(self, x):
        return x.tanh() if x.sum() > 0 else x.relu()


class Item(Net):
    def between(self, x):
        return x * x.detach().abs().max().item()


class Choice(Net):
    def between(self, x):
        return x.tanh() + len((x[0] > 0).nonzero())


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, inputs):
        return self.last(self.lstm(inputs.view(-1, 8, 8))[0][:, -1])


class Checkpointed(Net):
    def between(self, x):
        return checkpoint(self.tanh, x, use_reentrant=False)

    def tanh(self, x):
        return x.tanh()


class CheckpointedAgain(Checkpointed):
    def between(self, x):
        return checkpoint(self.tanh, x, use_reentrant=True)


class Dropout(Net):
    def between(self, x):
        return nn.functional.dropout(x, 0.5)


class SpectralNorm(Net):
    def add(self):
        self.middle = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))

    def between(self, x):
        return self.middle(x).tanh()


class WeightNorm(Net):
    def add(self):
        self.middle = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def between(self, x):
        return self.middle(x).tanh()


class ReplacedCounter(Counter):
    def between(self, x):
        self.calls = self.calls + 1
        return x / self.calls


class SparseEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(30, 8, sparse=True), nn.Linear(8, 10)

    def forward(self, inputs):
        return self.last(self.embedding(inputs.long().clamp(0, 29)).mean(1))


class OtherWhenStacked(Net):
    def between(self, x):
        return x.tanh() * (1.01 if torch._C._functorch.is_gradtrackingtensor(x) else 1.0)


class InfiniteWhenStacked(Net):
    def between(self, x):
        return x / (0.0 if torch._C._functorch.is_gradtrackingtensor(x) else 1.0)


class Alias(Net):
    """Holds on to a tensor that stacking puts others in the place of."""

    def add(self):
        self.held = [self.first.weight]

    def forward(self, inputs):
        return self.last((inputs @ self.held[0].mT).tanh())


FALLING = {
    Branch: r"cannot be stacked \(it branches on a value",
    Item: r"cannot be stacked \(it branches on a value, or reads one out with \.item\(\)\)",
    Choice: r"cannot be stacked \(the shape of a tensor depends on values\)",
    Lstm: r"cannot be stacked \(torch has no batching rule for aten::mkldnn_rnn_layer",
    Checkpointed: r"cannot be stacked \(it uses checkpointing",
    CheckpointedAgain: r"cannot be stacked \(it uses checkpointing",
    Dropout: r"cannot be stacked \(it draws random numbers, as dropout does\)",
    SpectralNorm: r"cannot be stacked \(torch has no batching rule for aten::div",
    WeightNorm: r"cannot be stacked \(torch has no batching rule for aten::_weight_norm_interface",
    ReplacedCounter: r"stacked, the model differs by \S+ from alone",
    SparseEmbedding: r"cannot be stacked \(",
    OtherWhenStacked: r"stacked, the model differs by 0\.01 from alone",
    InfiniteWhenStacked: r"stacked, the model is finite where alone it is not, or the other way",
    Alias: r"stacked, the model differs by \S+ from alone",
}
SLOW = (Lstm, WeightNorm)
QUIET = pytest.mark.filterwarnings(
    # torch says so of a reentrant checkpoint, and of an operation that is vmapped one by one.
    "ignore:None of the inputs have requires_grad",
    "ignore:There is a performance drop",
)


@QUIET
@pytest.mark.parametrize("build_model", FALLING, ids=lambda cls: cls.__name__)
def test_what_does_not_stack_runs_one_by_one_and_says_why(build_model):
    setup = setup_of(build_model, torch.float32)
    engine, why = build("auto", setup, TRIALS, 4)
    assert isinstance(engine, Loop)
    assert why.startswith("loop: ")
    assert re.search(FALLING[build_model], why), why
    assert "\n" not in why and len(why) < 170
    assert len(train(engine, TRIALS)) == len(TRIALS)


@QUIET
@pytest.mark.parametrize("build_model", [cls for cls in FALLING if cls not in SLOW])
def test_a_cohort_that_was_asked_for_and_would_be_wrong_is_refused(build_model):
    with pytest.raises(BadInput, match="engine=cohort is not possible: .*use engine=auto or loop"):
        build("cohort", setup_of(build_model, torch.float32), TRIALS, 4)


@QUIET
@pytest.mark.parametrize("build_model", SLOW, ids=lambda cls: cls.__name__)
def test_a_cohort_that_was_asked_for_may_be_slow(build_model):
    setup = setup_of(build_model)
    engine, why = build("cohort", setup, TRIALS, 4)
    assert (type(engine), why) == (Cohort, "cohort: up to 4 trials as one program, as asked")
    together = train(engine, TRIALS)
    assert_close(together[1], train(Loop(setup), [TRIALS[1]])[1])


@pytest.mark.parametrize("build_model", [Dropout, Norm, ReplacedCounter, SpectralNorm])
def test_one_by_one_a_trial_depends_on_its_seed_alone(build_model):
    setup = setup_of(build_model, torch.float32)
    before = torch.get_rng_state()
    first = train(Loop(setup), TRIALS)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert_same(train(Loop(setup), TRIALS[::-1], rung_steps=1), first, bitwise=True)
    other = replace(TRIALS[0], seed=7)
    assert train(Loop(setup), [other])[0].initial_loss != first[0].initial_loss


def test_dropout_draws_anew_at_every_step():
    class Drawing(Net):
        def between(self, x):
            return torch.rand_like(x).detach() + 0 * x

    setup = setup_of(Drawing, batch_size=2000)
    losses = train(Loop(setup), make_trials({"lr": 1e-30}))[0]["loss"]
    assert len(set(losses)) == setup.horizon


def test_a_model_that_fails_alone_raises_its_own_error():
    class Wrong(Net):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(63, 8)

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        build("auto", setup_of(Wrong, torch.float32), TRIALS, 4)


# ------------------------------------------------------------------------------ said


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"head": nn.Sequential(nn.Linear(64, 10), Branch())})

    def forward(self, inputs):
        return self.parts["head"][0](inputs) + self.parts["head"][1](inputs)


@pytest.mark.parametrize(
    ("build_model", "name"),
    [
        (Deep, r"loop: parts\.head\.1 \(Branch\) cannot be stacked"),
        (Lstm, r"loop: lstm \(LSTM\) cannot be stacked"),
        (Branch, r"loop: the model \(Branch\) cannot be stacked"),
    ],
)
def test_the_module_that_cannot_be_stacked_is_named(build_model, name):
    _, why = build("auto", setup_of(build_model, torch.float32), TRIALS, 4)
    assert re.match(name, why), why


def test_statistics_that_training_changes_are_those_of_the_trial():
    class Reader(Net):
        """Trains with the running statistics that the steps before have left."""

        def add(self):
            self.norm = nn.BatchNorm1d(8)

        def between(self, x):
            self.norm(x)
            return (x - self.norm.running_mean) / self.norm.running_var.sqrt()

    setup = setup_of(Reader)
    engine, why = build("auto", setup_of(Reader, torch.float32), TRIALS, 4)
    assert isinstance(engine, Cohort), why
    together = train(Cohort(setup, 3), TRIALS)
    for trial in TRIALS:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])
