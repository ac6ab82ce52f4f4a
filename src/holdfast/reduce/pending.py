"""An operation on its way, and the memory it works on."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import _native
from holdfast.control.adaptation import BucketKey


@dataclass(frozen=True)
class Memory:
    """A flat array of elements: where, how many, of what kind, and what keeps it alive."""

    address: int
    count: int
    format: _native.Format
    owner: object = None

    @property
    def num_bytes(self) -> int:
        return self.count * _native.element_bytes(self.format)


@dataclass(frozen=True)
class Pending:
    """An operation under way."""

    operation: int
    bucket: int | None
    memory: Memory
    exact: bool
    deadline_ms: float
    key: BucketKey
    early_wait_ms: tuple[float, float] | None = None
    bytes_ahead: int = 0
    """Of operations that were under way when it began."""
    announced_ms: tuple[float, float] = (0.0, 0.0)
    """What it told the peers that its stages took the last time."""
