"""What a bounded operation returns: how much arrived, from whom, how late, and what was missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

StageEnd = Literal["complete", "early", "limit", "bound", "open"]


@dataclass(frozen=True)
class PeerOutcome:
    """One peer's part in an operation."""

    rank: int
    contributed_ratio: float
    """Share of this rank's shard that the peer's contribution covered in time."""
    results_ratio: float
    """Share of the peer's shard whose result arrived here in time."""
    contribution_arrived_ms: tuple[float, float] | None
    """When the first and the last useful datagram of its contribution came, since the operation opened."""
    results_arrived_ms: tuple[float, float] | None
    """The same for the result of its shard; none when nothing came."""
    shard_elements: int
    """How many elements the peer sums for everybody."""
    alive: bool

    @property
    def complete(self) -> bool:
        return self.contributed_ratio == 1.0 and self.results_ratio == 1.0

    @property
    def last_arrival_ms(self) -> float | None:
        spans = [span for span in (self.contribution_arrived_ms, self.results_arrived_ms) if span is not None]
        return max((last for _, last in spans), default=None)


@dataclass(frozen=True)
class Outcome:
    """The result of one all-reduce, told from one rank."""

    rank: int
    """Who tells it."""
    operation: int
    bucket: int | None
    num_elements: int
    num_bytes: int
    exact: bool
    called_ms: float
    """When this rank called, since the operation opened; 0: nobody was before it."""
    elapsed_ms: float
    """From this rank's call to the end."""
    deadline_ms: float
    delivered_ratio: float
    """Contributions that made it into this rank's result, out of all ranks' for all elements."""
    contributions_end: StageEnd
    """What ended the first stage: everything had arrived, the last-percentile rule, or the bound."""
    results_end: StageEnd
    contributions_ms: float
    """When the first stage ended, since the operation opened."""
    results_ms: float
    """How long the second stage took from there, or from this rank's call if that was later."""
    early_wait_ms: tuple[float, float] | None
    """The silence that would have ended each stage early (x t_C); none for exact operations, which end complete."""
    missing: tuple[tuple[int, int], ...]
    """Element ranges of the result that did not arrive; they are zero on this rank."""
    peers: tuple[PeerOutcome, ...]
    late_ratio: float = 0.0
    """Share of an operation that arrived since the one before had ended, too late for it: what steers x."""
    narrow_ratio: float = 0.0
    """Share of what arrived here, contributions and results, that came in sixteen bits because it was late
    (`late_wire`)."""
    not_received_elements: int = 0
    """Elements of the result that did not arrive here although their owner is alive, so that others may have them: what
    lets replicas differ. Holes, to which nobody contributed, are missing on all ranks alike, and not counted."""
    ownerless_elements: int = 0
    """Elements of the result that had to come from a rank that is dead: missing on all ranks alike."""
    contributors: int = 0
    """Ranks that contributed to this result, in part at least. Owners say it: it is the same on every rank that received
    all of it."""
    missing_coefficients: tuple[tuple[int, int], ...] = ()
    """With `hadamard` on: ranges of the encoded result that did not arrive. What they held is spread over all elements
    of their blocks, which are estimates on this rank; `missing` then names blocks of which nothing arrived."""

    counted: tuple[tuple[int, int, float], ...] = ()
    """With `loss_feedback`: element ranges in which this rank's own contribution does not count once, and how often it
    does: 0 where it was lost or late, more than 1 where it stands for others. A handle does not keep it."""

    @property
    def complete(self) -> bool:
        return self.delivered_ratio == 1.0

    @property
    def missing_elements(self) -> int:
        return sum(end - begin for begin, end in self.missing)

    @property
    def late_peers(self) -> tuple[int, ...]:
        """Ranks of which something did not arrive in time."""
        return tuple(peer.rank for peer in self.peers if not peer.complete)

    @property
    def shard_elements(self) -> int:
        """How many elements this rank sums for everybody."""
        return self.num_elements - sum(peer.shard_elements for peer in self.peers)

    @property
    def ended_ms(self) -> float:
        """When it ended, since the operation opened."""
        return self.called_ms + self.elapsed_ms

    def trace(self) -> str:
        """Who arrived when, who was late and why each stage ended: a few lines with bars, to be printed."""
        from holdfast.telemetry.operation_trace import trace

        return trace(self)

    def draw(self, path: Path | str) -> None:
        """The same as a picture (SVG)."""
        from holdfast.telemetry.operation_picture import Seen, draw

        Path(path).write_text(draw([Seen(self)]), encoding="utf-8")

    def describe(self) -> str:
        """One sentence for a log."""
        text = (
            f"operation {self.operation}: {self.delivered_ratio:.2%} delivered in {self.elapsed_ms:.1f} of at most "
            f"{self.deadline_ms:.1f} ms (contributions {self.contributions_end}, results {self.results_end})"
        )
        if self.narrow_ratio > 0:
            text += f"; {self.narrow_ratio:.1%} came in sixteen bits"
        for peer in self.peers:
            if not peer.complete:
                when = (
                    "nothing came" if peer.last_arrival_ms is None else f"last heard at {peer.last_arrival_ms:.1f} ms"
                )
                state = "" if peer.alive else ", dead"
                text += (
                    f"; rank {peer.rank}{state}: {peer.contributed_ratio:.1%} of its contribution, "
                    f"{peer.results_ratio:.1%} of its results, {when}"
                )
        return text
