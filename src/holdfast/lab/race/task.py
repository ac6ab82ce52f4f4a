"""What a race is about, as data: the target, and how long to try. No torch, so that the command line stays light.

Model, optimizer and data of a task are in the module of the same name in `tasks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import ConfigError
from holdfast.lab.race.tasks import corpus, digits_file, idx_files


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    """For headings."""
    metric: Literal["accuracy", "loss"]
    target: float
    """Chosen so that four ranks that lose nothing need about two thirds of `max_steps`."""
    max_steps: int
    steps_per_evaluation: int
    """Models are kept so often, and judged when the turn is over: nobody waits for that."""
    steps_per_turn: int
    """Before the next peer's turn. Its end is a barrier, which training has not: some seconds at least."""
    require_data: Callable[[], None]
    """Raises ConfigError, with the command that helps, where the data are missing."""
    pretrained: bool = False
    """Starts from what `tasks.pretraining` made."""

    @property
    def higher_is_better(self) -> bool:
        return self.metric == "accuracy"


TASKS = {
    task.name: task
    for task in (
        Task("digits", "Digits, 8x8 images, 10 classes", "accuracy", 0.975, 260, 10, 40, digits_file.require),
        Task("fashion", "Fashion-MNIST, 28x28 images, 10 classes", "accuracy", 0.85, 300, 15, 45, idx_files.require),
        Task("text", "A transformer on half of Python's standard library", "loss", 2.35, 420, 15, 45, corpus.require),
        Task("finetune", "The same on the other half, pre-trained", "loss", 2.06, 300, 15, 45, corpus.require, True),
    )
}


def task_named(name: str) -> Task:
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}", what_to_try=f"one of {', '.join(TASKS)}")
    return TASKS[name]
