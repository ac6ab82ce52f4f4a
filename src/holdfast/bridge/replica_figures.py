"""What became of the replicas, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicaFigures:
    """What was found and mended on this rank since `attach`."""

    steps: int = 0
    dirty_steps: int = 0
    """After which this rank did not know its state to be that of the others."""
    withdrawn_steps: int = 0
    """Whose update was left out here, because less than half of an operation had arrived."""
    mended_blocks: int = 0
    mended_bytes: int = 0
    late_blocks: int = 0
    """Came after the step before which they had to be installed, and were asked for again."""
    worst_drift: float = 0.0
    """The largest |others - own| / |others| over a block, before it was closed."""
    bytes_sent: int = 0
    """Fingerprints and blocks, to whomever."""
    skipped_operations: int = 0
    """Done by the others while this rank was away, or on its way back."""
    passed_steps: int = 0
    """Of the own loop, which the others had made already: nothing was sent, nothing applied."""
    corruptions: tuple[str, ...] = ()
    """Differences that no loss explains, wherever they were: which rank, which tensors, after which step."""
