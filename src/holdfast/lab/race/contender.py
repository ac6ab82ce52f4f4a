"""One peer in a race: its ranks, what they are told, and what came of it so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np

from holdfast.lab.peer import Peer
from holdfast.lab.race.crew import Crew
from holdfast.lab.race.orders import Failed, Ready, Scored, Start, Trained
from holdfast.lab.race.record import Record

READY_LIMIT_S = 240.0
STEP_LIMIT_S = 150.0
EVALUATION_LIMIT_S = 240.0
END_LIMIT_S = 10.0
# How late a fault may strike, and how long an answer may lie unread; a step takes several of these.
TICK_S = 0.01
_LAST_WORDS_S = 0.3

Answer = TypeVar("Answer", Ready, Trained, Scored)
# Called while waiting, with the seconds waited so far; says how long it can do without.
Meanwhile = Callable[[float], float]


class BrokeOff(Exception):
    """The peer cannot go on; the message says why."""


class Contender:
    """A peer's ranks, from their start to their end. A rank's death ends the others' race only if they cannot go on."""

    def __init__(
        self, peer: Peer, crew: Crew, orders: Sequence[Connection], parameters: Sequence[int], start: Start
    ) -> None:
        self.peer = peer
        self.crew = crew
        self.record = Record()
        self._orders = list(orders)
        self._ranks = list(range(len(orders)))
        self._parameters = parameters
        self._num_parameters = 0
        self._send(start)

    def wait_ready(self) -> int:
        """Until all ranks have found each other; the number of the model's parameters."""
        ready = self._order(Ready, READY_LIMIT_S, "ready", meanwhile=self._nobody_may_end)
        self._num_parameters = ready[0].parameters
        return self._num_parameters

    def train(self, count: int, steps_per_evaluation: int, meanwhile: Meanwhile) -> None:
        """The next so many steps, on all ranks at once."""
        order = "train", self.record.steps, count, steps_per_evaluation
        self.record.add_turn(self._order(Trained, count * STEP_LIMIT_S, *order, meanwhile=meanwhile))

    def evaluate(self) -> None:
        """What the turn made of the model: the first living rank's scores, and how far the ranks' parameters were apart."""
        by_rank = self._order(Scored, EVALUATION_LIMIT_S, "evaluate")
        scores = by_rank[min(by_rank)].by_steps
        drifts = self._drifts(list(by_rank), len(scores))
        for (steps, score), drift in zip(scores.items(), drifts, strict=True):
            self.record.add_score(steps, score, drift)

    def end(self) -> None:
        """Lets the ranks go; those that do not are ended."""
        self._send(("end", ()))
        give_up = time.monotonic() + END_LIMIT_S
        while self.crew.alive and time.monotonic() < give_up:
            self.crew.pump(give_up - time.monotonic())
        self.close()

    def close(self) -> None:
        self.crew.stop()
        for orders in self._orders:
            orders.close()

    def _drifts(self, ranks: Sequence[int], num_models: int) -> list[float]:
        """Of each model that the ranks have just left in their memories, among what may be left of longer turns."""
        num_bytes = num_models * self._num_parameters * np.dtype(np.float32).itemsize
        flat = np.stack([np.frombuffer(os.pread(self._parameters[rank], num_bytes, 0), np.float32) for rank in ranks])
        apart = (flat.max(axis=0) - flat.min(axis=0)).reshape(num_models, -1)
        return [float(each.max()) for each in apart]

    def _order(
        self,
        kind: type[Answer],
        limit_s: float,
        verb: str,
        *arguments: Any,
        meanwhile: Meanwhile = lambda _waited_s: TICK_S,
    ) -> dict[int, Answer]:
        """Every living rank's answer. Raises BrokeOff when one failed, none is left, or the limit has passed."""
        self._send((verb, arguments))
        answers: dict[int, Answer] = {}
        began = time.monotonic()
        while missing := [rank for rank in self._ranks if rank not in answers]:
            waited_s = time.monotonic() - began
            if waited_s > limit_s:
                raise BrokeOff(f"{_ranks(missing)} did not {verb} within {limit_s:g} s")
            self.crew.pump(min(TICK_S, meanwhile(waited_s)))
            for rank in missing:
                answer = self._heard(rank)
                if isinstance(answer, Failed):
                    self._break_off(rank, answer)
                if isinstance(answer, kind):
                    answers[rank] = answer
        if not answers:
            last = list(self.crew.endings.values())[-1]
            raise BrokeOff(f"no rank is left; rank {last.rank} {last.how}")
        return answers

    def _heard(self, rank: int) -> Any:
        """What the rank has answered; nothing yet, or no more, is None."""
        with suppress(EOFError, ConnectionResetError):  # it has ended, which the crew will notice
            if self._orders[rank].poll():
                return self._orders[rank].recv()
        if rank not in self.crew.alive:
            self._ranks.remove(rank)
            self.record.note(f"rank {rank} {self.crew.endings[rank].how}")
        return None

    def _break_off(self, rank: int, failed: Failed) -> None:
        self.record.add_partial_turn(failed.step_ms)
        for steps, score in failed.by_steps.items():
            self.record.add_score(steps, score, drift=None)
        # Who fails is seldom who is to blame: a peer that died is noticed a moment later.
        self.crew.pump(_LAST_WORDS_S)
        for other in self._ranks:
            ending = self.crew.endings.get(other)
            if ending is not None and ending.code != 0:
                self.record.note(f"rank {other} {ending.how}")
        raise BrokeOff(f"rank {rank}: {failed.reason}")

    def _nobody_may_end(self, _waited_s: float) -> float:
        # The others would wait for it until their own limits.
        for rank, ending in self.crew.endings.items():
            raise BrokeOff(f"rank {rank} {ending.how}")
        return TICK_S

    def _send(self, message: Any) -> None:
        for rank in self._ranks:
            with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which the crew will notice
                self._orders[rank].send(message)


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))}"
