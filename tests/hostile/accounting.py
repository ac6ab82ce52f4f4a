"""Where every datagram went: dropped by cause, dropped by the kernel, or received."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

# Causes that no honest rank ever gives: whatever is counted here came from an attacker without a key.
OUTSIDER_CAUSES = (
    "truncated",
    "version",
    "malformed",
    "foreign_job",
    "foreign_epoch",
    "unknown_sender",
    "key_phase",
    "authentication",
    "replay",
    "too_old",
)


def outsider_drops(told: Mapping[str, Any]) -> dict[str, int]:
    return {cause: told["drops"][cause] for cause in OUTSIDER_CAUSES if told["drops"][cause]}


def unaccounted(told: list[dict[str, Any]], sent: Mapping[int, int], arrived_honest: Mapping[int, int]) -> list[int]:
    """By rank, what was sent to it less what it and its kernel say became of it. Zero is right.

    Honest datagrams that the kernel dropped are among `kernel_drops`, too: they arrived and were not received.
    """
    rest = []
    for rank, counts in enumerate(told):
        arrived = sent.get(rank, 0) + arrived_honest[rank]
        received = sum(counts["received"].values())
        rest.append(arrived - sum(outsider_drops(counts).values()) - counts["kernel_drops"] - received)
    return rest


def at_rest(
    tell: Callable[[], list[dict[str, Any]]], passed: Callable[[], Mapping[int, int]], limit_s: float = 20.0
) -> tuple[list[dict[str, Any]], Mapping[int, int]]:
    """Counters of all ranks and relays from a moment between two heartbeats, when nothing is on its way."""
    time.sleep(0.6)  # the kernel tells its drops with the next datagram: at least two heartbeats
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at:
        before = passed()
        told = tell()
        if told == tell() and before == passed():
            return told, before
        time.sleep(0.02)
    raise AssertionError("the job does not come to rest")
