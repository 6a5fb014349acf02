import optuna
import pytest

from stabsweep import sampler
from stabsweep.errors import BadInput
from stabsweep.space import Space
from stabsweep.study import rehearse

SPACE = Space.parse({"lr": {"low": 1e-4, "high": 1}, "clip_norm": [1, None]})


def build(**given):
    return sampler.build("optuna", SPACE, 10, (0, 1), 7, **given)


def make_sampler(n_startup_trials=3):
    return optuna.samplers.TPESampler(n_startup_trials=n_startup_trials)


class Lazy(optuna.samplers.RandomSampler):
    """Lacks what it needs, and finds out late."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        if trial.number:
            import a_module_that_nobody_has  # type: ignore # noqa: F401
        return super().sample_independent(study, trial, param_name, param_distribution)


def test_a_class_is_made_with_the_sweeps_seed_and_its_arguments():
    made = build(target="optuna.samplers:TPESampler", args={"n_startup_trials": 3})
    again = build(target="optuna.samplers:TPESampler", args={"seed": 7})
    assert isinstance(made, optuna.samplers.TPESampler) and made._n_startup_trials == 3
    draw = [rule._rng.rng.random() for rule in (made, again)]
    assert draw[0] == draw[1]


def test_a_function_without_a_seed_is_called_as_it_is():
    made = build(target=f"{__name__}:make_sampler", args={"n_startup_trials": 5})
    assert made._n_startup_trials == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "sampler=optuna needs sampler.target=module:attribute"),
        ({"target": "TPESampler"}, "sampler.target='TPESampler' is not module:attribute"),
        ({"target": 3}, "sampler.target=3 is not module:attribute"),
        ({"target": "optunaa:X"}, "module optunaa cannot be imported .*ModuleNotFoundError"),
        ({"target": "optuna.samplers:TPESamler"}, "did you mean optuna.samplers:TPESampler"),
        ({"target": "optuna.samplers:Xyzzy"}, "optuna.samplers has no Xyzzy$"),
        ({"target": "math:pi"}, r"cannot be called with \(\): TypeError"),
        ({"target": "builtins:dict"}, "gives dict: give a class that extends optuna"),
        (
            {"target": "optuna.pruners:NopPruner"},
            "gives NopPruner: give a class",
        ),
        (
            {"target": "optuna.samplers:TPESampler", "args": {"n_startup": 3}},
            r"cannot be called with \(seed=7, n_startup=3\): TypeError",
        ),
        ({"target": "optuna.samplers:TPESampler", "args": 3}, "sampler.args=3 is no mapping"),
        (
            {"target": "optuna.samplers:GridSampler", "args": {"search_space": {"lr": [1.0]}}},
            "use sampler=grid",
        ),
        ({"targt": "x:y"}, "sampler key='targt' is not known.*did you mean target"),
    ],
)
def test_what_cannot_be_used_is_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        build(**given)
    assert "\n" not in str(caught.value)


def test_a_module_of_the_working_folder_is_found(tmp_path, monkeypatch):
    import sys

    (tmp_path / "my_own_sampler.py").write_text(
        "import optuna\n\ndef make(): return optuna.samplers.RandomSampler()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert isinstance(build(target="my_own_sampler:make"), optuna.samplers.RandomSampler)
    sys.modules.pop("my_own_sampler")


def test_a_sampler_that_cannot_work_fails_before_anything_is_trained():
    with pytest.raises(BadInput, match="sampler Lazy fails on this space .*a_module_that_nobody"):
        rehearse(SPACE, Lazy())
    rehearse(SPACE, make_sampler())
