"""What comes before the race of `finetune`: a model that knows one half of the standard library.

Trained once per seed, by one process that has nothing to do with the lab, and kept as a file.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import LabError
from holdfast.lab import lifeline

NUM_STEPS = 400
BATCH_SIZE = 16
LEARNING_RATE = 2e-3
LIMIT_S = 1200
_END_LIMIT_S = 10.0
_STEPS_PER_WORD = 20


def weights_file(folder: Path, seed: int) -> Path:
    return folder / f"pretrained-{seed}.pt"


def ensure(folder: Path, seed: int, on_progress: Callable[[float], None], num_steps: int = NUM_STEPS) -> None:
    """Makes the file unless it is there. `on_progress` hears the share that is done."""
    path = weights_file(folder, seed)
    if path.exists():
        return
    command = [sys.executable, "-m", __name__, f"--seed={seed}", f"--steps={num_steps}"]
    with subprocess.Popen(
        lifeline.tied([*command, f"--output={path}"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                on_progress(int(line) / num_steps)
            code = process.wait(_END_LIMIT_S)
        except BaseException:
            process.kill()
            raise
    if code != 0:
        raise LabError(f"pre-training ended with code {code}", what_to_try="its last lines above")
    on_progress(1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    signal.alarm(LIMIT_S)  # whoever waits for this process need not count

    import torch

    from holdfast.lab.race.tasks.language import LanguageTraining
    from holdfast.lab.race.tasks.training import Place

    torch.set_num_threads(1)  # threads that wait for each other lose more on a shared machine than they gain
    torch.manual_seed(arguments.seed)
    alone = Place(arguments.seed, rank=0, num_ranks=1, prepared=arguments.output.parent)
    training = LanguageTraining(0, alone, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    for step in range(arguments.steps):
        training.optimizer.zero_grad()
        training.loss(training.model, step).backward()  # type: ignore[no-untyped-call]
        training.optimizer.step()
        if step % _STEPS_PER_WORD == 0:
            print(step, flush=True)
    unfinished = arguments.output.with_suffix(".unfinished")
    torch.save(training.model.state_dict(), unfinished)
    unfinished.replace(arguments.output)


if __name__ == "__main__":
    main()
