"""What every all-reduce offers to those who train, and which one a job gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.control.adaptation import Adaptation
from holdfast.control.hadamard_switch import HadamardSwitch
from holdfast.control.hard_bound import HardBound
from holdfast.link.link import Link
from holdfast.outcome import Outcome
from holdfast.reduce.host_groups import HostGroups
from holdfast.reduce.pending import Memory, Pending
from holdfast.reduce.shared_memory import SharedMemoryAllReduce
from holdfast.reduce.transpose import Position, TransposeAllReduce


class Reducer(Protocol):
    @property
    def adaptation(self) -> Adaptation | None: ...

    def adopt(self, bound: HardBound) -> None: ...

    def start(
        self,
        memory: Memory,
        *,
        layout: int = 0,
        bucket: int | None = None,
        exact: bool = False,
        average: bool = True,
        beside_bytes: int = 0,
    ) -> Pending: ...

    def start_numbered(
        self,
        prepare: Callable[[int], Memory],
        *,
        layout: int = 0,
        bucket: int | None = None,
        exact: bool = False,
        average: bool = True,
        beside_bytes: int = 0,
    ) -> Pending: ...

    def finish(self, pending: Pending) -> Outcome: ...

    def abandon(self, pending: Pending) -> None: ...

    @property
    def position(self) -> Position: ...

    def resume(self, next_operation: int, num_calls: int) -> int: ...

    @property
    def hadamard_switch(self) -> HadamardSwitch | None: ...

    def encodes(self, operation: int) -> bool: ...

    def explain(self) -> list[str]: ...


def reducer_for(link: Link) -> Reducer:
    """In shared memory where all ranks have met, in part where those of each host have, else over the network."""
    if link.meeting is not None:
        return SharedMemoryAllReduce(link, link.meeting)
    return TransposeAllReduce(link, None if link.host_meetings is None else HostGroups(link, *link.host_meetings))
