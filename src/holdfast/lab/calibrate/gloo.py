"""Gloo as an instrument: how long a small all-reduce takes, time after time.

All ranks begin together, at a time that is told to them over inherited sockets: a barrier over the lab's network would
be measured too. An operation takes from when the last rank began to when the last one had its result, so a rank that
the machine woke late does not count as a slow network. How late they woke says how busy the machine was: the switch
does not notice, its priority is higher. Ranks run at real-time priority, and TCP is Linux's usual.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import LabError
from holdfast.lab.cloud import Cloud
from holdfast.lab.launch import Workers
from holdfast.lab.peer import peer_named

QUESTION = struct.Struct("q")
ANSWER = struct.Struct("qq")
NUM_GRADIENTS = 2048
"""As small as in the OptiReduce paper's measure of a tail: 8 KiB of float32."""
WARM_UP = 32
"""Operations that are not counted: connections grow, caches fill."""
# Enough for all ranks to hear of it and go to sleep again.
_AHEAD_NS = 700_000
_START_LIMIT_S = 90.0
_ANSWER_LIMIT_S = 30.0


@dataclass(frozen=True)
class Operation:
    took_ms: float
    woke_late_ms: float
    """The last rank, after the time at which all were to begin."""


def allreduce(cloud: Cloud, num_operations: int) -> list[Operation]:
    """So many, one after the other."""
    tcp = peer_named("gloo-cubic").tcp
    assert tcp is not None
    cloud.set_tcp(congestion_control=tcp.congestion_control, rto_min_us=tcp.rto_min_us)
    said: list[str] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sockets = [socket.socketpair() for _ in cloud.hosts]
        for ours, theirs in sockets:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        module = f"{__package__}.gloo_rank"
        workers = stack.enter_context(
            Workers(
                cloud,
                lambda rank: [sys.executable, "-m", module, str(sockets[rank][1].fileno()),
                              str(Path(folder) / "store"), str(NUM_GRADIENTS)],
                on_line=lambda rank, line: said.append(f"rank {rank}: {line}"),
                inherited={rank: [theirs.fileno()] for rank, (_, theirs) in enumerate(sockets)},
            )
        )  # fmt: skip
        controls = []
        for ours, theirs in sockets:
            theirs.close()
            controls.append(ours)
        try:
            _answers(controls, _START_LIMIT_S)
            operations = [operate(controls) for _ in range(WARM_UP + num_operations)]
        except OSError as error:
            workers.wait(1.0)
            raise LabError(f"Gloo's ranks fell silent ({error}): {' / '.join(said[-3:]) or 'no word'}") from error
        for control in controls:
            control.shutdown(socket.SHUT_WR)
        workers.wait(_ANSWER_LIMIT_S)
    return operations[WARM_UP:]


def operate(controls: Sequence[socket.socket]) -> Operation:
    begin_ns = time.monotonic_ns() + _AHEAD_NS
    for control in controls:
        control.sendall(QUESTION.pack(begin_ns))
    answers = _answers(controls, _ANSWER_LIMIT_S)
    last_began_ns, last_ended_ns = max(began for began, _ in answers), max(ended for _, ended in answers)
    return Operation((last_ended_ns - last_began_ns) / 1e6, (last_began_ns - begin_ns) / 1e6)


def _answers(controls: Sequence[socket.socket], limit_s: float) -> list[tuple[int, int]]:
    answers = []
    for control in controls:
        control.settimeout(limit_s)
        answer = control.recv(ANSWER.size, socket.MSG_WAITALL)
        if len(answer) != ANSWER.size:
            raise ConnectionError("a rank ended")
        answers.append(ANSWER.unpack(answer))
    return answers
