from __future__ import annotations

import inspect
import math
import re

import pytest
import torch
from torch import nn

from stabsweep import task
from stabsweep.api import sweep
from stabsweep.errors import BadInput
from stabsweep.model import MLP
from stabsweep.plan import COHORT_SIZE, Plan, find_device, find_seeds
from stabsweep.space import Space
from stabsweep.task import Digits

RANGE = {"low": 1e-4, "high": 1.0}
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(sweep).parameters.items()
    if name not in ("folder", "watcher")
}
GIVEN = {**DEFAULTS, "model": "mlp", "task": "digits", "space": {"lr": RANGE}, "device": "cpu"}


def make(**given):
    return Plan.make({**GIVEN, **given})


def space(**axes):
    return {"lr": RANGE, **axes}


def test_the_defaults_make_a_plan():
    plan = make()
    assert (plan.horizon, plan.num_trials, plan.seeds) == (200, 96, (0, 1))
    assert plan.optimizer == {"name": "adamw"}
    assert plan.fixed == {
        "warmup_steps": 0,
        "clip_norm": None,
        "init": "default",
        "init_gain": 1.0,
    }
    assert (plan.cohort_size, plan.rung_steps) == (COHORT_SIZE["cpu"], 20)
    assert (plan.device, plan.precision) == (torch.device("cpu"), "fp32")
    assert isinstance(plan.setup({}).build_model(), MLP)


def no_sentence():
    """Stands for whatever a reader may not be shown."""


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(63, 10)

    def forward(self, inputs):
        return self.layer(inputs)


class Still(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
        self.requires_grad_(False)


BAD = [
    # what is given, what the line must say: key, value, what is allowed
    ({"horizon": 1}, r"horizon=1 is not allowed: use a whole number >= 2"),
    ({"horizon": 2.5}, r"horizon=2\.5 is not allowed: use a whole number >= 2"),
    ({"horizon": "200"}, r"horizon='200' is not allowed: use a whole number >= 2"),
    ({"horizon": True}, r"horizon=True is not allowed: use a whole number >= 2"),
    ({"horizon": None}, r"horizon=None is not allowed: use a whole number >= 2"),
    ({"num_trials": 0}, r"num_trials=0 is not allowed: use a whole number >= 1"),
    ({"num_trials": math.inf}, r"num_trials=inf is not allowed: use a whole number >= 1"),
    ({"batch_size": -3}, r"batch_size=-3 is not allowed: use a whole number >= 1"),
    ({"sampler_seed": -1}, r"sampler_seed=-1 is not allowed: use a whole number >= 0"),
    ({"cohort_size": 0}, r"cohort_size=0 is not allowed: use a whole number >= 1"),
    ({"rung_steps": 0}, r"rung_steps=0 is not allowed: use a whole number >= 1"),
    ({"rung_steps": "all"}, r"rung_steps='all' is not allowed: use a whole number >= 1"),
    ({"schedule": "cosin"}, r"schedule='cosin' is not known: use one of constant, cosine.*mean"),
    ({"schedule": None}, r"schedule=None is not known: use one of constant"),
    ({"engine": "lop"}, r"engine='lop' is not known: use one of auto, cohort, loop .*mean loop"),
    ({"engine": ["loop"]}, r"engine=\['loop'\] is not known: use one of auto"),
    ({"sampler": "gird"}, r"sampler='gird' is not known: use one of .*did you mean grid"),
    ({"sampler": ["grid"]}, r"sampler=\['grid'\] is not a choice: give a name"),
    ({"sampler": {"name": "gird"}}, r"sampler='gird' is not known: use one of .*mean grid"),
    ({"pruner": "divergense"}, r"pruner='divergense' is not known: use one of .*mean divergence"),
    ({"pruner": 3}, r"pruner=3 is not a choice: give a name"),
    (
        {"precision": "float16"},
        r"precision='float16' is not known: use one of bf16",
    ),
    ({"precision": torch.float32}, r"precision=torch\.float32 is not known: use one of "),
    ({"margin_decades": -0.1}, r"margin_decades=-0\.1 is not allowed: use a number >= 0"),
    ({"margin_decades": math.nan}, r"margin_decades=nan is not allowed: use a number >= 0"),
    ({"margin_decades": math.inf}, r"margin_decades=inf is not allowed: use a number >= 0"),
    ({"margin_decades": "0.2"}, r"margin_decades='0\.2' is not allowed: use a number >= 0"),
    ({"margin_decades": True}, r"margin_decades=True is not allowed: use a number >= 0"),
    # hyperparameters that hold for every trial
    ({"warmup_steps": -1}, r"warmup_steps=-1 is out of range: use a whole number >= 0"),
    ({"warmup_steps": 0.5}, r"warmup_steps=0\.5 is out of range: use a whole number >= 0"),
    ({"warmup_steps": None}, r"warmup_steps=None cannot be switched off: use a whole number"),
    ({"clip_norm": 0}, r"clip_norm=0 is out of range: use a finite number > 0, or null for none"),
    ({"clip_norm": -1}, r"clip_norm=-1 is out of range: use a finite number > 0"),
    ({"clip_norm": math.inf}, r"clip_norm=inf is out of range: .*or null for none"),
    ({"clip_norm": "tight"}, r"clip_norm='tight' is not a number: use a finite number > 0"),
    ({"init": "xaver"}, r"init='xaver' is not known: use one of .*did you mean xavier"),
    ({"init": "normal(0)"}, r"init='normal\(0\)' is malformed: write normal\(0\.02\)"),
    ({"init": "spectral(0.9)"}, r"init='spectral\(0.9\)' sets .* and the model has none: use mod"),
    ({"space": space(init=["default", "spectral(1)"])}, r"init='spectral\(1\)' sets .* has none"),
    ({"init": 3}, r"init=3 is not a name: give the name of one choice"),
    ({"init_gain": 0}, r"init_gain=0 is out of range: use a finite number > 0"),
    ({"init_gain": None}, r"init_gain=None cannot be switched off: use a finite number > 0"),
    # seeds
    ({"seeds": 0}, r"seeds=0 is not allowed: use a whole number >= 1"),
    ({"seeds": []}, r"seeds=\[\] is empty: give a count or a list of seeds"),
    ({"seeds": [0, -1]}, r"seeds=-1 is not allowed: use a whole number >= 0"),
    ({"seeds": [0.5]}, r"seeds=0\.5 is not allowed: use a whole number >= 0"),
    ({"seeds": "2"}, r"seeds='2' is not allowed: use a whole number >= 1"),
    ({"seeds": True}, r"seeds=True is not allowed: use a whole number >= 1"),
    (
        {"seeds": [2**70]},
        r"seeds=1180591620717411303424 is not allowed: use a whole number >=",
    ),
    # device
    ({"device": "gpu"}, r"device='gpu' is not known: use auto, cpu, cuda or cuda:N"),
    ({"device": None}, r"device=None is not known: use auto, cpu, cuda or cuda:N"),
    ({"device": "cuda:99"}, r"device='cuda:99' is not on this machine: use one of auto, cpu"),
    ({"device": "meta"}, r"device='meta' is not on this machine: use one of auto, cpu"),
    # what is chosen by name
    ({"optimizer": "adamm"}, r"optimizer='adamm' is not known: use one of .*did you mean adam"),
    ({"optimizer": None}, r"optimizer=None is not a choice: give a name, or \{name: "),
    ({"optimizer": {"lr": 1}}, r"optimizer=\{'lr': 1\} is not a choice: give a name, or \{name: "),
    ({"optimizer": {"name": "sgd", "beta1": 0.5}}, r"optimizer\.sgd key='beta1' is not known: use"),
    (
        {"optimizer": {"name": "adam", "beta1": 1}},
        r"optimizer\.beta1=1 is out of range: use a finite number >= 0 and < 1",
    ),
    (
        {"optimizer": {"name": "sgd", "nesterov": True, "dampening": 0.1}},
        r"optimizer\.dampening=0\.1 does not go with nesterov=true: use dampening=0",
    ),
    ({"model": "mpl"}, r"model='mpl' is not known: use one of fractal, mlp, .*did you mean mlp"),
    ({"model": {"name": "mlp", "widht": 3}}, r"model=mlp: argument='widht' is not known: .*width"),
    ({"model": {"name": "mlp", "width": 0}}, r"model\.width=0 is not allowed: use a whole number"),
    ({"model": 3}, r"model=3 is not a choice: give a name, or \{name: "),
    ({"model": "transformer"}, r"model=transformer reads tokens, but the task gives vectors: use"),
    ({"model": nn.Linear(64, 10)}, r"model=Linear\(\.\.\.\) is one module.*lambda: Linear\("),
    ({"model": no_sentence}, r"model=no_sentence returns None: give a function that returns an nn"),
    ({"model": Still}, r"model=Still has no parameter to train: set requires_grad on some"),
    (
        {"model": Broken},
        r"model=Broken fails on a batch of task=digits, \(\(64, 64\), \(64,\)\) \(.*mat1 and mat2 "
        r"shapes cannot be multiplied .*\): make it read and answer that",
    ),
    ({"task": "digit"}, r"task='digit' is not known: use one of .*did you mean digits"),
    ({"task": {"name": "text", "length": 0}}, r"task\.length=0 is not allowed: use a whole number"),
    ({"task": Digits}, r"task=<class .*> is not a choice: give a name, or \{name: "),
    # space
    ({"space": {}}, r"space has no lr axis: give space\.lr="),
    ({"space": "lr"}, r"space='lr' is not a space: give axes"),
    ({"space": {"lr": 0.1}}, r"space\.lr=0\.1 is not an axis: give \{low, high, scale\} or a list"),
    ({"space": {"lr": {"low": 0, "high": 1}}}, r"space\.lr\.low=0 is out of range: use .*> 0"),
    ({"space": {"lr": {"low": 1, "high": 1}}}, r"space\.lr is empty: low=1 is not below high=1"),
    ({"space": space(learning=[1])}, r"axis='learning' is not known: use one of "),
    (
        {"space": space(optimizer=["sgd", "adan"])},
        r"space\.optimizer='adan' is not known: use one of adam, adamw, gi_adam, lion, ",
    ),
    ({"space": space(init=["default", "xaver"])}, r"init='xaver' is not known: .*mean xavier"),
    ({"space": space(init={"low": 0, "high": 1})}, r"space\.init is a choice of names: give val"),
    (
        {"space": space(momentum=[0.0, 0.9])},
        r"space\.momentum has no effect on adamw: take the axis away or choose another optimizer",
    ),
    (
        {"space": space(momentum=[0.0, 0.9], optimizer=["adam", "adamw"]), "optimizer": "sgd"},
        r"space\.momentum has no effect on adam, adamw: take the axis away or choose another",
    ),
    (
        {"space": space(dampening=[0.0, 0.5]), "optimizer": {"name": "sgd", "nesterov": True}},
        r"optimizer\.dampening=0\.5 does not go with nesterov=true",
    ),
    # the peak must be reached
    (
        {"horizon": 50, "warmup_steps": 50},
        r"warmup_steps=50 is too long for horizon=50: the peak rate is to be held for 16 steps "
        r"after it; raise horizon, use warmup_steps up to 34$",
    ),
    ({"horizon": 50, "warmup_steps": 12500}, r"warmup_steps=12500 is too long for horizon=50"),
    ({"horizon": 50, "warmup_steps": 35}, r"warmup_steps=35 is too long for horizon=50"),
    ({"horizon": 200, "warmup_steps": 199}, r"warmup_steps=199 .* held for 20 steps after it"),
    ({"horizon": 4, "warmup_steps": 2}, r"warmup_steps=2 is too long .* warmup_steps up to 1$"),
    (
        {"horizon": 50, "space": space(warmup_steps={"low": 0, "high": 50})},
        r"space\.warmup_steps=50 is too long for horizon=50: .* or sweep no warmup \(space=lr\)$",
    ),
    (
        {"horizon": 50, "space": space(warmup_steps=[60, 0, 10])},
        r"space\.warmup_steps=60 is too long for horizon=50",
    ),
]


@pytest.mark.parametrize("given, message", BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_a_bad_argument_gets_one_line_with_key_value_and_cure(given, message):
    with pytest.raises(BadInput) as caught:
        make(**given)
    line = str(caught.value)
    assert "\n" not in line
    assert re.match(message, line), line


def test_a_broken_model_keeps_its_own_error_as_the_cause():
    with pytest.raises(BadInput) as caught:
        make(model=Broken)
    assert isinstance(caught.value.__cause__, RuntimeError)


# ------------------------------------------------------------------------------ good ones


def test_the_warmup_may_last_until_the_peak_can_just_be_held():
    assert make(horizon=50, warmup_steps=34).fixed["warmup_steps"] == 34
    make(horizon=200, space=space(warmup_steps=[0, 180]))
    make(horizon=2, warmup_steps=1)  # The first step is at the peak already.


def test_a_swept_warmup_takes_the_place_of_the_fixed_one():
    make(horizon=50, warmup_steps=60, space=space(warmup_steps=[0, 10]))


def test_auto_takes_a_gpu_when_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto").type == "cuda"


def test_a_gpu_that_is_not_there_names_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda") == torch.device("cuda")
    assert find_device("cuda:1").index == 1
    with pytest.raises(BadInput, match="device='cuda:2' .*: use one of auto, cpu, cuda:0, cuda:1$"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    "given, seeds",
    [
        (1, (0,)),
        (3, (0, 1, 2)),
        ([7], (7,)),
        ((4, 2), (4, 2)),
        ([5, 5, 1], (5, 1)),
        (range(2), (0, 1)),
    ],
)
def test_seeds_are_a_count_or_a_list(given, seeds):
    assert find_seeds(given) == make(seeds=given).seeds == seeds


def test_the_largest_seed_can_be_run():
    (seed,) = find_seeds([2**63 - 1])
    torch.Generator().manual_seed(seed)


def test_a_model_may_be_a_function_or_a_class():
    class Own(nn.Linear):
        def __init__(self):
            super().__init__(64, 10)

    assert isinstance(make(model=Own).setup({}).build_model(), Own)
    made = make(model=lambda: nn.Linear(64, 10)).setup({}).build_model()
    assert isinstance(made, nn.Linear)


def test_a_task_and_a_space_may_be_objects():
    data = task.build("digits")
    axes = Space.parse({"lr": RANGE})
    plan = make(task=data, space=axes, precision="fp64")
    assert plan.space is axes
    moved = plan.setup({}).task
    assert isinstance(moved, Digits)
    assert moved.inputs.dtype == torch.float64


def test_making_a_plan_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    make()
    make(model=lambda: nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.1)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("horizon, rung_steps", [(2, 1), (10, 1), (11, 2), (200, 20), (205, 21)])
def test_a_rung_is_a_tenth_of_the_horizon(horizon, rung_steps):
    assert make(horizon=horizon).rung_steps == rung_steps
    assert make(horizon=horizon, rung_steps=7).rung_steps == 7


def test_a_clip_norm_of_none_is_written_in_many_ways():
    for none in (None, "none", "null", "off"):
        assert make(clip_norm=none).fixed["clip_norm"] is None
    assert make(clip_norm="1e-1").fixed["clip_norm"] == 0.1


def test_the_configured_optimizer_keeps_its_values_among_the_swept_ones():
    plan = make(
        optimizer={"name": "sgd", "momentum": 0.5, "nesterov": True},
        space=space(optimizer=["sgd", "adam"]),
        clip_norm=2.0,
    )
    sgd, adam = plan.setup({"optimizer": "sgd"}), plan.setup({"optimizer": "adam"})
    assert (sgd.optimizer.name, sgd.optimizer.nesterov) == ("sgd", True)
    assert sgd.fixed["momentum"] == 0.5 and sgd.fixed["clip_norm"] == 2.0
    assert adam.optimizer.name == "adam"
    assert adam.fixed["beta1"] == 0.9 and "momentum" not in adam.fixed
    assert plan.setup({}).optimizer.name == "sgd"


def test_an_axis_may_have_an_effect_on_one_of_several_optimizers():
    make(optimizer="adam", space=space(momentum=[0.0, 0.9], optimizer=["sgd", "adam"]))


# ------------------------------------------------------------------------------ axes that feed


def to_model(*values):
    return {"values": list(values), "to": "model"}


def test_axes_feed_the_model_the_task_and_the_optimizer():
    plan = make(
        optimizer="sgd",
        model="rnn",
        task={"name": "adding", "num_examples": 64},
        space=space(
            hidden=to_model(4, 8),
            length={"values": [5, 6], "to": "task"},
            nesterov={"values": [False, True], "to": "optimizer"},
            batch_size=[2, 3],
            precision=["fp32", "fp64"],
            schedule=["constant", "cosine"],
        ),
    )
    setup = plan.setup(
        {
            "hidden": 8,
            "length": 6,
            "nesterov": True,
            "batch_size": 3,
            "precision": "fp64",
            "schedule": "cosine",
        }
    )
    assert setup.build_model().readout.in_features == 8
    assert setup.task.signature.length == 6
    assert setup.optimizer.nesterov is True
    assert (setup.batch_size, setup.dtype, setup.schedule) == (3, torch.float64, "cosine")


@pytest.mark.parametrize(
    ("name", "values", "how", "to"),
    [
        ("width", [4, 8], {}, "model"),
        ("depth", {"values": [1, 2]}, {}, "model"),
        ("length", [5, 6], {"model": "rnn", "task": "adding"}, "task"),
        ("nesterov", [True], {"optimizer": "sgd"}, "optimizer"),
        ("hidden", [3], {"model": lambda hidden=2: nn.Linear(64, 10)}, "model"),
    ],
)
def test_an_argument_needs_no_receiver_where_there_is_one(name, values, how, to):
    assert make(space=space(**{name: values}), **how).space.axes[name].to == to


def test_a_hyperparameter_of_ours_goes_nowhere_else():
    assert make(space=space(momentum=[0.0]), optimizer="sgd").space.axes["momentum"].to is None


def test_a_task_is_made_once_for_its_arguments():
    plan = make(space=space(width=to_model(4, 8)))
    assert plan.setup({"width": 4}).task is plan.setup({"width": 8}).task


def test_a_function_is_called_with_what_an_axis_gives():
    plan = make(
        model=lambda width: nn.Sequential(nn.Linear(64, width), nn.Linear(width, 10)),
        space=space(width=to_model(3, 5)),
    )
    assert plan.setup({"width": 5}).build_model()[0].out_features == 5


def test_the_rates_of_some_parameters_are_those_of_an_axis():
    plan = make(
        lr_scales={"readout.*": 0.5},
        space=space(first={"low": 0.1, "high": 1, "to": "lr:hidden.0.*"}),
    )
    found = plan.setup({}).lr_scales
    assert (found.fixed, found.rate_axes) == ({"readout.*": 0.5}, {"first": "hidden.0.*"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"space": space(widht=[4])}, "axis='widht' is not known: .*with to: model"),
        ({"space": space(widht=to_model(4))}, "model=mlp: argument='widht' .*did you mean width"),
        ({"space": space(width=to_model(4, "wide"))}, "model.width='wide' is not allowed"),
        (
            {"space": space(length={"values": [3], "to": "task"})},
            "task=digits: argument='length' is not known",
        ),
        (
            {"space": space(length={"values": [3], "to": "task"}), "task": task.build("digits")},
            "space.length.to=task has no effect on a task that is a Python object",
        ),
        (
            {"space": space(nesterov={"values": [True], "to": "optimizer"})},
            "optimizer.adamw key='nesterov' is not known",
        ),
        (
            {"space": space(width=to_model(4)), "model": lambda: nn.Linear(64, 10)},
            "cannot be called with width, which space gives it",
        ),
        ({"space": space(precision=["fp32", "fp8"])}, "space.precision='fp8' is not known"),
        ({"space": space(schedule=["cosin"])}, "space.schedule='cosin' .*did you mean cosine"),
        (
            {"lr_scales": {"readuot.*": 2}},
            "lr pattern 'readuot.*' matches no parameter of model=ml",
        ),
        ({"lr_scales": {"readout.*": 0}}, r"lr_scales.readout.\*=0 is out of range"),
        ({"lr_scales": [1]}, r"lr_scales=\[1\] is no mapping"),
    ],
)
def test_what_an_axis_cannot_feed_is_one_line(given, says):
    with pytest.raises(BadInput, match=says) as caught:
        make(**given)
    assert "\n" not in str(caught.value)


def test_a_spectral_init_is_told_with_what_it_does_to_the_gradient():
    plan = make(
        model={"name": "rnn", "hidden": 8},
        task="adding",
        init="spectral(0.9)",
        space=space(length={"values": [5, 10], "to": "task"}, optimizer=["sgd", "adam"]),
    )
    found = list(plan.notes)
    assert len(found) == 2
    number = r"[\d.e-]+"
    for line, length in zip(found, (5, 10), strict=True):
        assert re.fullmatch(
            rf"init spectral\(0\.9\), length={length}: spectral radius 0\.9; gradient through "
            rf"{length} steps x {number} \(rho\^{length - 1} = {number}\)",
            line,
        )


def test_every_spectral_init_of_an_axis_is_told_and_no_other():
    inits = ["default", "spectral(0.5)", "spectral(1.5)", "orthogonal"]
    plan = make(model="rnn", task="adding", space=space(init=inits))
    assert [line.partition(":")[0] for line in plan.notes] == [f"init {i}" for i in inits[1:3]]
    assert list(make(model="rnn", task="adding", init="orthogonal").notes) == []
    gated = make(model={"name": "rnn", "cell": "gru"}, task="adding", init="spectral(1)")
    assert list(gated.notes) == []


def test_a_spectral_init_that_overflows_is_told():
    given = {"model": {"name": "rnn", "cell": "relu"}, "task": {"name": "adding", "length": 150}}
    (line,) = make(**given, init="spectral(3)").notes
    assert "the gradient through 150 steps is not finite (rho^149 = 1.2e71)" in line
