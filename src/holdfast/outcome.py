"""What a bounded operation returns: how much arrived, from whom, how late, and what was missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StageEnd = Literal["complete", "early", "bound", "open"]


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

    operation: int
    bucket: int | None
    num_elements: int
    num_bytes: int
    exact: bool
    elapsed_ms: float
    """From this rank's call to the end."""
    deadline_ms: float
    delivered_ratio: float
    """Contributions that made it into this rank's result, out of all ranks' for all elements."""
    contributions_end: StageEnd
    """What ended the first stage: everything had arrived, the last-percentile rule, or the bound."""
    results_end: StageEnd
    contributions_ms: float
    results_ms: float
    missing: tuple[tuple[int, int], ...]
    """Element ranges of the result that did not arrive; they are zero on this rank."""
    peers: tuple[PeerOutcome, ...]
    late_ratio: float = 0.0
    """Share of an operation that arrived since the one before had ended, too late for it: what steers x."""

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

    def describe(self) -> str:
        """One sentence for a log."""
        text = (
            f"operation {self.operation}: {self.delivered_ratio:.2%} delivered in {self.elapsed_ms:.1f} of at most "
            f"{self.deadline_ms:.1f} ms (contributions {self.contributions_end}, results {self.results_end})"
        )
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
