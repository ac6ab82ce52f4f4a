"""Every task learns, from the seed alone; fine-tuning starts where pre-training ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.lab.race.task import TASKS, task_named
from holdfast.lab.race.tasks import pretraining

pytestmark = pytest.mark.xdist_group("processes")  # where torch is loaded anyway


def begin(task: str, prepared: Path, seed: int = 5):  # type: ignore[no-untyped-def]
    import torch

    from holdfast.lab.race.tasks import training

    torch.set_num_threads(1)
    return training.begin(task, training.Place(seed, rank=1, num_ranks=4, prepared=prepared))


def _loss(training) -> float:  # type: ignore[no-untyped-def]
    return training.evaluate(training.model).loss  # type: ignore[no-any-return]


def learn(task: str, prepared: Path, num_steps: int, seed: int = 5) -> tuple[float, float]:
    """The loss before and after some steps."""
    training = begin(task, prepared, seed)
    before = _loss(training)
    for step in range(num_steps):
        training.optimizer.zero_grad()
        training.loss(training.model, step).backward()
        training.optimizer.step()
    return before, _loss(training)


@pytest.mark.parametrize(("task", "num_steps"), [("digits", 12), ("fashion", 12), ("text", 4)])
def test_a_task_learns_and_its_seed_decides_everything(task: str, num_steps: int, tmp_path: Path) -> None:
    try:
        task_named(task).require_data()
    except ConfigError as missing:
        pytest.skip(str(missing))
    before, after = learn(task, tmp_path, num_steps)
    assert after < before - 0.01
    assert (before, after) == learn(task, tmp_path, num_steps)
    assert before != _loss(begin(task, tmp_path, seed=6))


def test_gradients_are_small_enough_for_the_lab_and_large_enough_to_matter(tmp_path: Path) -> None:
    for task in ("digits", "text"):
        megabytes = sum(4 * parameter.numel() for parameter in begin(task, tmp_path).model.parameters()) / 1e6
        assert 0.5 <= megabytes <= 4, task


def test_fine_tuning_starts_from_what_pre_training_made_once(tmp_path: Path) -> None:
    shares: list[float] = []
    pretraining.ensure(tmp_path, 5, shares.append, num_steps=3)
    assert shares == [0.0, 1.0]
    made = pretraining.weights_file(tmp_path, 5)
    assert _loss(begin("finetune", tmp_path)) < _loss(begin("text", tmp_path)) - 0.5
    changed = made.stat().st_mtime_ns
    pretraining.ensure(tmp_path, 5, shares.append)
    assert (made.stat().st_mtime_ns, shares) == (changed, [0.0, 1.0])


def test_every_task_has_a_name_that_is_its_module() -> None:
    folder = Path(pretraining.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in TASKS)
    with pytest.raises(ConfigError, match="unknown task 'chess'"):
        task_named("chess")
