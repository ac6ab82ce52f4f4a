"""Ranks that follow a script instead of training: the runner's orders, answered in milliseconds, without torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from pathlib import Path

from holdfast.lab.peer import peer_named
from holdfast.lab.race.contender import Contender
from holdfast.lab.race.crew import LoopbackCrew
from holdfast.lab.race.orders import Start

# Every model has two parameters, and after k steps of the race the accuracy k/10. Trains a step in its rank's number of milliseconds. Its script is Python that runs before each answer.
_SCRIPTED = """
import os, signal, struct, sys, time
from multiprocessing.connection import Connection
from holdfast.lab.race.orders import Failed, Ready, Score, Scored, Trained
rank, orders, memory = int(os.environ["RANK"]), Connection(int(sys.argv[1])), int(sys.argv[2])
kept = [0]
orders.recv()
while True:
    verb, arguments = orders.recv()
    if verb == "end":
        break
    if verb == "ready":
        answer = Ready(2)
    elif verb == "train":
        first, count, every = arguments
        kept = [done for done in range(first + 1, first + count + 1) if done % every == 0 or done == first + count]
        answer = Trained([float(rank)] * count)
    else:
        for place, done in enumerate(kept):
            os.pwrite(memory, struct.pack("2f", 1.0, done * rank / 4), 8 * place)
        answer = Scored({done: Score(done / 10, 1.0) for done in kept})
    SCRIPT
    orders.send(answer)
"""


@contextmanager
def scripted(script: str, tmp_path: Path, num_ranks: int = 2) -> Iterator[Contender]:
    """A contender whose ranks do `script` before they answer; `rank`, `verb` and `answer` are at hand."""
    code = _SCRIPTED.replace("SCRIPT", script)
    pairs = [Pipe() for _ in range(num_ranks)]
    memories = [os.memfd_create("parameters") for _ in range(num_ranks)]
    inherited = {rank: (pairs[rank][1].fileno(), memories[rank]) for rank in range(num_ranks)}

    def command(rank: int) -> list[str]:
        return [sys.executable, "-c", code, *map(str, inherited[rank])]

    crew = LoopbackCrew(num_ranks, command, inherited, tmp_path)
    start = Start("digits", "gloo", 0, tmp_path / "store", tmp_path, in_lab=False)
    contender = Contender(peer_named("gloo"), crew, [pair[0] for pair in pairs], memories, start)
    for _, theirs in pairs:
        theirs.close()
    try:
        yield contender
    finally:
        contender.close()
        for memory in memories:
            os.close(memory)
        assert crew.alive == []
