"""One rank of one peer of a race: a process that trains when it is told to, and tells what came of it.

`python -m holdfast.lab.race.rank`, on a host of the lab or on plain loopback. The Store is a file, so what crosses the
network is what the peer sends: gradients, and DDP's own first exchange.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.errors import HoldfastError
from holdfast.lab import events
from holdfast.lab.peer import Peer, peer_named
from holdfast.lab.priority import raise_priority
from holdfast.lab.race.half_width import half_width_hook
from holdfast.lab.race.orders import Failed, Ready, Scored, Start, Trained
from holdfast.lab.race.tasks import training
from holdfast.lab.race.tasks.training import Training

# The other peers train while this one waits; their turns have limits of their own, two hours for 45 steps.
ORDER_LIMIT_S = 6 * 3600.0
_STORE_LIMIT = timedelta(seconds=120)
# Longer than any stall of a working network: what takes longer ends the peer's race, not the lab's patience.
GLOO_LIMIT = timedelta(seconds=120)
# Forward and backward together, in forward passes: what a slow host is slower in.
_FORWARDS_PER_STEP = 3


class Rank:
    """Its public methods are the verbs of the runner's orders."""

    def __init__(self, start: Start, rank: int, num_ranks: int, parameters: int) -> None:
        """`parameters`: a descriptor to which they are written, for the runner to compare."""
        self.turn_ms: list[float] = []
        self._parameters = parameters
        self._training = training.begin(start.task, training.Place(start.seed, rank, num_ranks, start.prepared))
        # Others may still be fetching what they missed from the model that is trained.
        self._judged = copy.deepcopy(self._training.model)
        self._kept = {0: self._copy_of_state()}
        _warm_up(self._training)
        store = dist.FileStore(str(start.store), num_ranks)
        store.set_timeout(_STORE_LIMIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=GLOO_LIMIT)
        self._model = DistributedDataParallel(self._training.model)
        self._handle = _take_over(self._model, self._training.optimizer, peer_named(start.peer))

    def ready(self) -> Ready:
        return Ready(sum(parameter.numel() for parameter in self._model.parameters()))

    def train(self, first: int, count: int, steps_per_evaluation: int) -> Trained:
        """A model is kept every so many steps, where the next epoch begins, and at the end of the turn."""
        self.turn_ms = []
        self._kept = {}
        for step in range(first, first + count):
            if step == first or step % steps_per_evaluation == 0:
                events.epoch(step // steps_per_evaluation + 1)
            events.step(step)
            self.turn_ms.append(self._step(step))
            done = step + 1
            if done % steps_per_evaluation == 0 or done == first + count:
                self._kept[done] = self._copy_of_state()
        if self._handle is None:
            return Trained(self.turn_ms)
        told = self._handle.summary()
        explain = tuple(self._handle.explain().splitlines())
        return Trained(self.turn_ms, told.delivered_ratio, told.incomplete_by_peer, explain)

    def evaluate(self) -> Scored:
        """Every rank does, not one alone: it would be a straggler in the next step."""
        by_steps, place = {}, 0
        for steps, state in self._kept.items():
            self._judged.load_state_dict(state)
            flat = torch.nn.utils.parameters_to_vector(self._judged.parameters())
            place += os.pwrite(self._parameters, flat.detach().numpy().data, place)
            by_steps[steps] = self._training.evaluate(self._judged)
        return Scored(by_steps)

    def last_words(self, reason: str) -> Failed:
        """What a turn had made of the model before it broke off counts."""
        return Failed(reason, self.turn_ms, self.evaluate().by_steps)

    def _copy_of_state(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self._training.model.state_dict().items()}

    def _step(self, step: int) -> float:
        started = time.perf_counter()
        self._training.optimizer.zero_grad()
        began = time.thread_time()
        loss = self._training.loss(self._model, step)
        events.straggle(_FORWARDS_PER_STEP * (time.thread_time() - began))
        loss.backward()  # type: ignore[no-untyped-call]
        self._training.optimizer.step()
        return (time.perf_counter() - started) * 1e3


def _warm_up(task: Training) -> None:
    """What torch does only the first time is nobody's communication. On a copy, so that training begins untouched."""
    task.loss(copy.deepcopy(task.model), 0).backward()  # type: ignore[no-untyped-call]


def _take_over(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, peer: Peer) -> holdfast.Handle | None:
    if peer.transport == "holdfast":
        return holdfast.attach(model, optimizer, **peer.settings)
    if peer.wire_bytes == 2:
        model.register_comm_hook(None, half_width_hook)
    return None


def serve(rank: Rank, orders: Connection) -> None:
    """Until told to `end`, until something fails, or until the other side is gone."""
    while orders.poll(ORDER_LIMIT_S):
        verb, arguments = orders.recv()
        if verb == "end":
            return
        answer = _carry_out(rank, verb, arguments)
        orders.send(answer)
        if isinstance(answer, Failed):
            return


def _carry_out(rank: Rank, verb: str, arguments: tuple[Any, ...]) -> Ready | Trained | Scored | Failed:
    try:
        answer: Ready | Trained | Scored = getattr(rank, verb)(*arguments)
        return answer
    except Exception as error:
        traceback.print_exc()
        return rank.last_words(_reason(error)) if verb == "train" else Failed(_reason(error), [])


def _reason(error: Exception) -> str:
    text = str(error)
    if not isinstance(error, HoldfastError):
        # Gloo begins with a place in its own source and ends with general advice.
        text = re.sub(r"^\[[^\]]*\] ", "", text.split("\n")[0]).split(". ")[0]
    return f"{type(error).__name__}: {text}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=int, required=True, help="descriptor of the socket on which orders come")
    parser.add_argument("--parameters", type=int, required=True, help="descriptor of memory for the parameters")
    options = parser.parse_args()
    torch.set_num_threads(1)
    orders = Connection(options.orders)
    try:
        start: Start = orders.recv()
        # On plain loopback ranks share the machine with everybody: nobody is put ahead.
        if start.in_lab:
            raise_priority()
        try:
            this = Rank(start, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.parameters)
        except Exception as error:
            traceback.print_exc()
            orders.send(Failed(_reason(error), []))
        else:
            serve(this, orders)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the race has ended
    # No farewell over a network that may be broken: whatever is left goes with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
