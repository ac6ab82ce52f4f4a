"""Gloo as an instrument: how long a small all-reduce takes, time after time.

The bench's ranks do it, with Linux's usual TCP. An operation takes from when the last rank began to when the last one
had its result, so a rank that the machine woke late does not count as a slow network. How late they woke says how busy
the machine was: the switch does not notice, its priority is higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.config import Config
from holdfast.lab.bench.row import Measured
from holdfast.lab.bench.session import Session
from holdfast.lab.cloud import Cloud
from holdfast.lab.peer import peer_named

NUM_GRADIENTS = 2048
"""As small as in the OptiReduce paper's measure of a tail: 8 KiB of float32."""
WARM_UP = 32
"""Operations that are not counted: connections grow, caches fill."""


@dataclass(frozen=True)
class Operation:
    took_ms: float
    woke_late_ms: float
    """The last rank, after the time at which all were to begin."""


def allreduce(cloud: Cloud, num_operations: int) -> list[Operation]:
    """So many, one after the other."""
    peer = peer_named("gloo-cubic")
    with Session([peer], len(cloud.hosts), Config(), cloud) as session:
        session.set_size(4 * NUM_GRADIENTS)
        return [observe(*session.operation(peer)) for _ in range(WARM_UP + num_operations)][WARM_UP:]


def observe(start_ns: int, measured: Sequence[Measured]) -> Operation:
    last_began_ns, last_ended_ns = max(each.began_ns for each in measured), max(each.ended_ns for each in measured)
    return Operation((last_ended_ns - last_began_ns) / 1e6, (last_began_ns - start_ns) / 1e6)
