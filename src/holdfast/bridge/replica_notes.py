"""What ranks tell each other to keep their replicas equal. Whatever does not parse is no note at all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_REPORT, _CONTENT, _VERDICT, _REFUSAL, _CORRUPTION, _WHERE, _STANDING = range(1, 8)
_STANDING_FORM = struct.Struct(">BQII")  # kind, step, next operation, calls so far
# The same, layout, dirty, first unsure block, budget, portion and of how many, number of digests.
_REPORT_FORM = struct.Struct(">BQIII?IQHHI")
_CONTENT_FORM = struct.Struct(">BQI")  # kind, step, block
_VERDICT_FORM = struct.Struct(">BQIII")  # kind, step, blocks compared, unequal, sent
_REFUSAL_FORM = struct.Struct(">BQ???")  # kind, step, sure, withdrew, equal
_CORRUPTION_FORM = struct.Struct(">BQHI")  # kind, step, rank, number of blocks


@dataclass(frozen=True)
class Standing:
    """How far a rank has come: steps done, and where in the order of operations the next one begins."""

    step: int
    next_operation: int
    num_calls: int

    def encode(self) -> bytes:
        return _STANDING_FORM.pack(_STANDING, self.step, self.next_operation, self.num_calls)


@dataclass(frozen=True)
class Portion:
    """Of the blocks, every `of`-th from number `number` on."""

    number: int = 0
    of: int = 1

    def blocks(self, num_blocks: int) -> range:
        return range(self.number, num_blocks, self.of)


@dataclass(frozen=True)
class Report:
    """Fingerprints of a slice of the state after a step; of all of it, if the rank knows that it missed something."""

    standing: Standing
    layout: int
    dirty: bool
    first_unsure: int
    """Where to go on, if the state cannot be compared any more because the one who is asked is a step further."""
    budget_bytes: int
    """How much of it this rank can take before its next step."""
    fingerprints: tuple[int, ...]
    portion: Portion = Portion()
    """Which blocks it asks for."""

    @property
    def step(self) -> int:
        return self.standing.step

    def encode(self) -> bytes:
        head = _REPORT_FORM.pack(
            _REPORT,
            self.standing.step,
            self.standing.next_operation,
            self.standing.num_calls,
            self.layout,
            self.dirty,
            self.first_unsure,
            self.budget_bytes,
            self.portion.number,
            self.portion.of,
            len(self.fingerprints),
        )
        return head + struct.pack(f">{len(self.fingerprints)}Q", *self.fingerprints)


@dataclass(frozen=True)
class Content:
    """A block as it is after a step."""

    step: int
    block: int
    content: bytes

    def encode(self) -> bytes:
        return _CONTENT_FORM.pack(_CONTENT, self.step, self.block) + self.content


@dataclass(frozen=True)
class Verdict:
    """To a rank that is not sure of its state: what it asked for was unequal, and how much of that is on its way."""

    step: int
    compared: int
    """Blocks. 0: it could not be compared; what was sent begins at the block that was named as the first."""
    unequal: int
    sent: int

    def encode(self) -> bytes:
        return _VERDICT_FORM.pack(_VERDICT, self.step, self.compared, self.unequal, self.sent)


@dataclass(frozen=True)
class Refusal:
    """From one that cannot send its state."""

    step: int
    """Of the report that is refused."""
    sure: bool
    """Only busy; else it is not sure of its state either."""
    withdrew: bool
    """Because it has left out an update that others made."""
    equal: bool
    """It has the same fingerprints after that step."""

    def encode(self) -> bytes:
        return _REFUSAL_FORM.pack(_REFUSAL, self.step, self.sure, self.withdrew, self.equal)


@dataclass(frozen=True)
class Corruption:
    """Blocks of a rank that differ from the others' though it missed nothing."""

    step: int
    rank: int
    blocks: tuple[int, ...]

    def encode(self) -> bytes:
        head = _CORRUPTION_FORM.pack(_CORRUPTION, self.step, self.rank, len(self.blocks))
        return head + struct.pack(f">{len(self.blocks)}I", *self.blocks)


@dataclass(frozen=True)
class Where:
    """Asks for a standing."""

    def encode(self) -> bytes:
        return bytes([_WHERE])


Message = Standing | Report | Content | Verdict | Refusal | Corruption | Where


def decode(note: bytes) -> Message | None:
    try:
        return _decode(note)
    except (struct.error, IndexError):
        return None


def _decode(note: bytes) -> Message | None:
    kind = note[0]
    if kind == _WHERE:
        return Where() if len(note) == 1 else None
    if kind == _STANDING:
        _, step, operation, calls = _STANDING_FORM.unpack(note)
        return Standing(step, operation, calls)
    if kind == _REPORT:
        _, step, operation, calls, layout, dirty, first, budget, number, of, count = _REPORT_FORM.unpack_from(note)
        if number >= of:
            return None
        values = _numbers(note[_REPORT_FORM.size :], "Q", count)
        standing = Standing(step, operation, calls)
        return Report(standing, layout, dirty, first, budget, tuple(values), Portion(number, of))
    if kind == _CONTENT:
        _, step, block = _CONTENT_FORM.unpack_from(note)
        return Content(step, block, note[_CONTENT_FORM.size :])
    if kind == _VERDICT:
        return Verdict(*_VERDICT_FORM.unpack(note)[1:])
    if kind == _REFUSAL:
        return Refusal(*_REFUSAL_FORM.unpack(note)[1:])
    if kind == _CORRUPTION:
        _, step, rank, count = _CORRUPTION_FORM.unpack_from(note)
        return Corruption(step, rank, tuple(_numbers(note[_CORRUPTION_FORM.size :], "I", count)))
    return None


def _numbers(octets: bytes, code: str, count: int) -> Sequence[int]:
    if len(octets) != count * struct.calcsize(f">{code}"):
        raise struct.error("another length than was said")
    return struct.unpack(f">{count}{code}", octets)
