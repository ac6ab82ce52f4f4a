"""Calls Holdfast in random order with random arguments: the child process of `test_spinning.py`.

    python spinner.py --seed 1 --seconds 5

Every call is printed before it is made, must end within a limit, and may raise nothing but what is documented:
Holdfast's own errors, and `TypeError` or `ValueError` for an argument. The seed of a round is printed before the round;
the same seed draws the same calls, though threads may interleave otherwise.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import time

import hypothesis
import torch
import torch.distributed as dist
from attach_machine import AttachAlone, small_model
from caller import Caller
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from job_machine import JobOfThree
from join_machine import JoinAndConfigure

from holdfast.bridge import handle as handle_module
from holdfast.reduce import transpose

MACHINES: list[type[RuleBasedStateMachine]] = [JobOfThree, AttachAlone, JoinAndConfigure]
_ROUND_SETTINGS = hypothesis.settings(
    max_examples=3,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.generate],  # threads make shrinking useless; the calls are printed instead
    suppress_health_check=list(hypothesis.HealthCheck),
    print_blob=False,
)


def spin(seed: int, seconds: float) -> None:
    ends = time.monotonic() + seconds
    rounds = 0
    while rounds < len(MACHINES) or time.monotonic() < ends:
        machine = MACHINES[rounds % len(MACHINES)]
        print(f"round --seed {seed + rounds} {machine.__name__}", flush=True)
        run_state_machine_as_test(hypothesis.seed(seed + rounds)(machine), settings=_ROUND_SETTINGS)
        rounds += 1


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--seconds", type=float, required=True)
    chosen = arguments.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    # Waits for peers that will never come: shorter than users have them, for more calls a minute.
    handle_module._DETACH_PATIENCE_MS = 200.0
    transpose._GRACE_S = 1.0
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    small_model()  # DDP's first model loads a good part of torch
    gc.freeze()  # so that looking for forgotten handles does not look through all of torch each time
    spin(chosen.seed, chosen.seconds)
    print(f"{Caller.num_answered} calls answered, {Caller.num_refused} refused by name", flush=True)
    # Not the interpreter's own end: what that does to threads that still wait is not what is tested here.
    os._exit(0)


if __name__ == "__main__":
    main()
