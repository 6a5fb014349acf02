"""The guard in the real `transformers.Trainer`, on the CPU, with models made from configs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from stabsweep import BadInput, Outcome

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here is to be loaded from anywhere

hf = importlib.import_module("transformers")
TransformersGuard = importlib.import_module("stabsweep.adapter.transformers").TransformersGuard
hf.logging.set_verbosity_error()

STEPS, BATCH, MARK = 10, 4, 63
"""Updates of a run; examples of a batch; a token that the second block cannot bear."""


class Tokens(Dataset):
    def __init__(self, mark_at: tuple[int, ...] = ()) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randint(0, MARK, (2 * STEPS, BATCH, 8), generator=generator)
        self.x[list(mark_at), 0, 0] = MARK
        self.x = self.x.flatten(0, 1)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.x[i], "labels": self.x[i]}


class InOrder(hf.Trainer):
    """A trainer that takes the batches as they stand."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


class Watcher(hf.TrainerCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[float, dict[str, torch.Tensor]]] = []

    def on_step_end(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        for i, moments in optimizer.state_dict()["state"].items():
            kept.update({f"{i}.{name}": value.clone() for name, value in moments.items()})
        self.seen.append((optimizer.param_groups[0]["lr"], kept))


def gpt2() -> Any:
    torch.manual_seed(0)
    sizes = dict(vocab_size=MARK + 1, n_positions=8, n_embd=16, n_layer=2, n_head=2)
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    is_marked = [False]

    def look(_: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        is_marked[0] = bool((ids == MARK).any())

    def overflow(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        return output / (0.0 if is_marked[0] else 1.0)

    model.transformer.register_forward_pre_hook(look, with_kwargs=True)
    model.transformer.h[1].mlp.c_fc.register_forward_hook(overflow)
    return model


def trainer_of(folder: Path, data: Any, *callbacks: Any, model: Any = None, **more: Any) -> Any:
    given = {"save_strategy": "no", "max_steps": STEPS, "learning_rate": 1e-2, **more}
    args = hf.TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
        warmup_steps=2,
        dataloader_pin_memory=False,
        **given,
    )
    return InOrder(model or gpt2(), args, train_dataset=data, callbacks=list(callbacks))


def train(trainer: Any, **more: Any) -> list[tuple[float, dict[str, torch.Tensor]]]:
    watcher = Watcher()
    trainer.add_callback(watcher)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train(**more)
    trainer.remove_callback(watcher)
    return watcher.seen


def guarded(**options: Any) -> Any:
    return TransformersGuard(**{"progress": "off", **options})


def is_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_grad_norm": 0.3, "gradient_accumulation_steps": 2},
        {"max_grad_norm": 0.0},
        {"bf16": True},
    ],
    ids=["default", "accumulated", "unclipped", "bf16"],
)
def test_a_run_without_incidents_is_that_of_the_trainer_alone_to_the_last_bit(
    tmp_path: Path, more: dict
) -> None:
    guard = guarded()
    # One after the other: a trainer sets the seed that dropout draws from.
    alone_trainer = trainer_of(tmp_path, Tokens(), **more)
    alone = train(alone_trainer)
    watched_trainer = trainer_of(tmp_path, Tokens(), guard, **more)
    watched = train(watched_trainer)
    assert is_same(alone[-1][1], watched[-1][1])
    assert [lr for lr, _ in alone] == [lr for lr, _ in watched]
    assert guard.guard.num_steps == STEPS
    assert (guard.guard.clip_share > 0) == (more.get("max_grad_norm") != 0.0)
    for one, other in zip(
        alone_trainer.state.log_history[:STEPS],
        watched_trainer.state.log_history[:STEPS],
        strict=True,
    ):
        assert other["num_skipped"] == 0 and 0 <= other["clip_share"] <= 1
        # What the trainer logs is the norm before clipping, with the guard as without.
        assert one.items() <= other.items()


def test_the_trainer_alone_loses_its_weights_even_without_a_limit(tmp_path: Path) -> None:
    """Why the guard looks before the trainer measures: it measures by clipping at infinity."""

    def model_with_a_bad_gradient() -> Any:
        model = gpt2()
        model.transformer.ln_f.bias.register_hook(lambda grad: grad * math.inf)
        return model

    seen: list[int] = []

    class Late(hf.TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            seen.append(sum(not bool(grad.isfinite().all()) for grad in grads))

    more = {"max_grad_norm": 0.0, "max_steps": 1}
    train(trainer_of(tmp_path, Tokens(), Late(), model=model_with_a_bad_gradient(), **more))
    assert seen[0] > 20

    guard = guarded()
    train(trainer_of(tmp_path, Tokens(), guard, model=model_with_a_bad_gradient(), **more))
    assert [bad.name for bad in guard.guard.diagnosis.gradients] == ["transformer.ln_f.bias"]


def test_a_batch_that_is_not_finite_changes_nothing_and_is_named(tmp_path: Path) -> None:
    guard = guarded()
    trainer = trainer_of(tmp_path, Tokens(mark_at=(5,)), guard)
    seen = train(trainer)
    assert is_same(seen[4][1], seen[5][1]) and not is_same(seen[5][1], seen[6][1])
    rates = [1000 * lr for lr, _ in seen]
    assert rates == pytest.approx([5, 10, 8.75, 7.5, 6.25, 6.25, 5, 3.75, 2.5, 1.25])
    found = guard.guard.diagnosis
    assert found.module == "transformer.h.1.mlp.c_fc" and found.cause.label == "forward"
    assert [(at, kind) for at, kind, _ in guard.guard.events] == [
        (0, "clipping"),
        (5, "not_finite"),
    ]
    assert (guard.guard.num_steps, guard.guard.num_attempts) == (STEPS - 1, STEPS)
    assert trainer.state.log_history[STEPS - 1]["num_skipped"] == 1
    # The guard's log keeps what was; the trainer's has another number in its place.
    assert math.isnan(guard.guard._attempts.journal.columns["loss"][5])
    assert math.isfinite(trainer.state.log_history[5]["loss"])


def test_a_window_is_one_attempt_whose_loss_is_the_trainers(tmp_path: Path) -> None:
    guard = guarded()
    trainer = trainer_of(
        tmp_path, Tokens(mark_at=(5,)), guard, gradient_accumulation_steps=2, max_steps=6
    )
    seen = train(trainer)
    assert is_same(seen[1][1], seen[2][1])
    assert guard.guard.diagnosis.micro_batch == 1
    assert "batch 2 of 2 of window 2" in guard.guard.events[1][2]
    losses = guard.guard._attempts.journal.columns["loss"]
    told = [line["loss"] for line in trainer.state.log_history[:6]]
    for i in (0, 1, 3, 4, 5):
        assert losses[i] == pytest.approx(told[i], rel=1e-5)


def test_a_loss_per_batch_is_told_as_it_is(tmp_path: Path) -> None:
    class Plain(nn.Module):
        """A model that knows nothing of the trainer's windows, with the loss first in a tuple."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Embedding(MARK + 1, 8), nn.Linear(8, MARK + 1))

        def forward(self, input_ids: Any, labels: Any) -> Any:
            logits = self.net(input_ids)
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits

    guard = guarded()
    more = {"gradient_accumulation_steps": 2, "max_steps": 3}
    trainer = trainer_of(tmp_path, Tokens(), guard, model=Plain(), **more)
    train(trainer)
    losses = guard.guard._attempts.journal.columns["loss"]
    assert list(losses) == pytest.approx([h["loss"] for h in trainer.state.log_history[:3]])


def test_a_stop_ends_training_at_once(tmp_path: Path) -> None:
    guard = guarded(policy="stop")
    trainer = trainer_of(tmp_path, Tokens(mark_at=(5,)), guard)
    seen = train(trainer)
    assert len(seen) == trainer.state.global_step == 6
    assert "transformer.h.1.mlp.c_fc" in guard.guard.reason
    assert is_same(seen[4][1], seen[5][1])


def test_a_rollback_restores_all_and_lowers_the_rate(tmp_path: Path) -> None:
    guard = guarded(policy="rollback", log=tmp_path / "log", checkpoint_every=4, tensorboard=False)
    seen = train(trainer_of(tmp_path, Tokens(mark_at=(6,)), guard))
    assert is_same(seen[3][1], seen[6][1])
    assert seen[6][0] == pytest.approx(seen[3][0] / 2)
    assert seen[7][0] == pytest.approx(seen[4][0] / 2)


def test_the_trainer_saves_no_weights_that_are_not_finite(tmp_path: Path) -> None:
    class Break(hf.TrainerCallback):
        def on_step_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
            if _[1].global_step == 5:
                with torch.no_grad():
                    model.transformer.ln_f.weight.fill_(math.nan)

    guard = guarded(policy="warn")
    more = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    train(trainer_of(tmp_path, Tokens(), guard, Break(), **more))
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    assert any(kind == "checkpoint" for _, kind, _ in guard.guard.events)


def test_counters_clipper_and_log_go_on_from_a_checkpoint_of_the_trainer(tmp_path: Path) -> None:
    def run(**more: Any) -> Any:
        guard = guarded(clipper="autoclip", log=tmp_path / "log", tensorboard=False)
        saving = {"save_strategy": "steps", "save_steps": 5, **more}
        resume = saving.pop("resume_from_checkpoint", None)
        trainer = trainer_of(tmp_path, Tokens(mark_at=(3,)), guard, **saving)
        seen = train(trainer, resume_from_checkpoint=resume)
        return guard.guard, seen

    whole, seen = run()
    assert (whole.num_steps, whole.num_attempts) == (STEPS - 1, STEPS)
    state = json.loads((tmp_path / "checkpoint-5" / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["TransformersGuard"]["attributes"]["counters"]
    assert (kept["num_steps"], kept["num_attempts"]) == (4, 5)
    again, repeated = run(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert (again.num_steps, again.num_attempts) == (STEPS - 1, STEPS)
    assert is_same(seen[-1][1], repeated[-1][1])
    assert list(again._attempts.journal.columns["attempt"]) == list(range(STEPS))


def test_a_second_train_goes_on_and_everything_is_given_back(tmp_path: Path) -> None:
    guard = guarded(log=tmp_path / "log", tensorboard=False)
    trainer = trainer_of(tmp_path, Tokens(mark_at=(2,)), guard, max_steps=3)
    for _ in range(2):
        train(trainer)
        assert not {"training_step", "log"} & vars(trainer).keys()
        assert "clip_grad_norm_" not in vars(trainer.accelerator)
        assert not trainer.accelerator.optimizer_step_was_skipped
    assert (guard.guard.num_steps, guard.guard.num_attempts) == (4, 6)


def test_a_gradient_scaler_stays_accelerates(tmp_path: Path) -> None:
    """On the CPU the trainer refuses fp16, so the scaler is put where it would put its own."""
    guard = guarded()
    trainer = trainer_of(tmp_path, Tokens(mark_at=(8,)), guard, max_steps=12)
    accelerator = trainer.accelerator
    accelerator.native_amp, accelerator.state._mixed_precision = True, "fp16"
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22)
    try:
        seen = train(trainer)
    finally:
        accelerator.state._mixed_precision = "no"
    columns = guard.guard._attempts.journal.columns
    assert columns.outcomes[0] == Outcome.SKIPPED_OVERFLOW.label
    assert columns.outcomes[8] == Outcome.SKIPPED_NOT_FINITE.label
    assert is_same(seen[7][1], seen[8][1])
    stepped = [i for i, outcome in enumerate(columns.outcomes) if outcome == "stepped"]
    assert len(stepped) == guard.guard.num_steps >= 4
    assert all(columns["grad_norm"][i] < 100 and columns["loss"][i] < 100 for i in stepped)
    # The scheduler counts steps, not attempts.
    assert trainer.lr_scheduler.last_epoch == len(stepped)
    assert accelerator.scaler.get_scale() < 2.0**22


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sixteen_bits_on_a_gpu(tmp_path: Path) -> None:
    guard = guarded()
    args = hf.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        fp16=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    model = gpt2()
    trainer = InOrder(model, args, train_dataset=Tokens(mark_at=(8,)), callbacks=[guard])
    train(trainer)
    assert guard.guard.num_attempts == STEPS and guard.guard.num_steps < STEPS
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"polcy": "skip"}, "did you mean policy"),
        ({"policy": "skp"}, "policy='skp'"),
        ({"resume": True}, "the framework has it"),
        ({"clipper": "norm", "clip_norm": 0}, "clip_norm"),
    ],
)
def test_arguments_are_checked_when_they_are_given(options: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TransformersGuard(**options)


def test_outside_a_trainer_it_says_what_to_use() -> None:
    with pytest.raises(BadInput, match="GradientGuard"):
        guarded().on_train_begin(None, None, None)


def test_an_optimizer_that_steps_in_the_backward_pass_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, Tokens(), guarded())
    trainer.create_optimizer()
    trainer.args.optim = "lomo"
    with pytest.raises(BadInput, match="optim='lomo'"):
        train(trainer)


def test_without_transformers_the_import_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "stabsweep.adapter.transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'stabsweep\[transformers\]'"):
        importlib.import_module("stabsweep.adapter.transformers")
