"""What the native side says of an operation, in the words of those who want to know: the caller, and control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from holdfast import _native
from holdfast.control.adaptation import PacketsSeen, StageSeen
from holdfast.control.early_timeout import StageEnd as StageClosed
from holdfast.control.narrowing import NARROW_SAVES_RATIO
from holdfast.errors import BucketMismatch, DeadlineExceeded, OperationError, PeerDead
from holdfast.outcome import Outcome, PeerOutcome, StageEnd
from holdfast.reduce.pending import Pending

# So much of a contribution must have come before its pace says anything.
_LEAST_BYTES_FOR_A_RATE = 16 << 10


def stages_seen(report: _native.OperationReport, own_rank: int) -> tuple[StageSeen, StageSeen]:
    """Contributions and results, as control wants to know them."""
    peers = _others(report, own_rank)
    dead = frozenset(rank for rank, peer in peers.items() if not peer.alive)
    silent = somebody_was_silent(report, own_rank)
    contributions = StageSeen(
        cast(StageClosed, report.contributions_end.name),
        report.contributions_s * 1e3,
        {rank: peer.contributed for rank, peer in peers.items()},
        {rank: peer.contribution_size for rank, peer in peers.items()},
        [peer.contributions_sample_us / 1e3 or None for peer in peers.values()],
        dead_peers=dead,
        before_call=report.waited_for_call_s >= report.contributions_s,
        somebody_was_silent=silent,
    )
    results = StageSeen(
        cast(StageClosed, report.results_end.name),
        report.results_s * 1e3,
        {rank: peer.results for rank, peer in peers.items()},
        {rank: peer.result_size for rank, peer in peers.items()},
        [peer.results_sample_us / 1e3 or None for peer in peers.values()],
        dead_peers=dead,
        somebody_was_silent=silent,
    )
    return contributions, results


def _others(report: _native.OperationReport, own_rank: int) -> dict[int, _native.PeerReport]:
    return {rank: peer for rank, peer in enumerate(report.peers) if rank != own_rank}


def somebody_was_silent(report: _native.OperationReport, own_rank: int) -> bool:
    """A living peer, for longer than hosts and roads take."""
    return any(peer.alive and peer.silence_s > 0 for peer in _others(report, own_rank).values())


def stage_times_ms(outcome: Outcome) -> tuple[float, float]:
    """How long the stages lasted, each from its own beginning to its end.

    They overlap: results come while contributions still do. `results_ms` is what was left of the second stage when the
    first had closed, which may be next to nothing: a bound made of those would be too short for the first.
    """
    firsts_ms = [peer.results_arrived_ms[0] for peer in outcome.peers if peer.results_arrived_ms is not None]
    end_ms = outcome.contributions_ms + outcome.results_ms
    return outcome.contributions_ms, max(outcome.results_ms, end_ms - min(firsts_ms, default=end_ms))


def contribution_rates(
    report: _native.OperationReport, own_rank: int, element_format: _native.Format
) -> dict[int, float]:
    """Bytes per second, of those peers that sent enough to tell."""
    rates = {}
    for rank, peer in _others(report, own_rank).items():
        # What came in sixteen bits took fewer bytes: a rank is not faster for being late.
        elements = peer.contributed - NARROW_SAVES_RATIO * peer.narrow_contributed
        num_bytes = elements * _native.element_bytes(element_format)
        if peer.contribution_arrived_s is None or num_bytes < _LEAST_BYTES_FOR_A_RATE:
            continue
        first_s, last_s = peer.contribution_arrived_s
        if last_s > first_s:
            rates[rank] = num_bytes / (last_s - first_s)
    return rates


_ERRORS: dict[_native.Status, tuple[type[OperationError], str, str]] = {
    _native.Status.mismatch: (
        BucketMismatch,
        "another rank called something else here: another shape, dtype or bucket order, or it has finished training",
        "the same model, bucket_cap_mb, dtype and number of steps on every rank (DistributedSampler, drop_last=True)",
    ),
    _native.Status.peer_dead: (PeerDead, "a peer fell silent or left", "look at that rank's log"),
    _native.Status.deadline_exceeded: (
        DeadlineExceeded,
        "an exact operation did not finish in time",
        "look at those ranks' logs, or raise exact_deadline_ms",
    ),
}


def raise_for_status(report: _native.OperationReport, pending: Pending) -> None:
    if report.status != _native.Status.done:
        raise error_named(report.status, report.culprits, report.elapsed_s * 1e3, pending)


def error_named(status: _native.Status, culprits: Sequence[int], elapsed_ms: float, pending: Pending) -> OperationError:
    error, message, what_to_try = _ERRORS[status]
    return error(
        message,
        what_to_try=what_to_try,
        peers=sorted(set(culprits)),
        bucket=pending.bucket,
        elapsed_ms=elapsed_ms,
        deadline_ms=pending.deadline_ms,
    )


def outcome_of(
    report: _native.OperationReport, pending: Pending, own_rank: int, *, with_counted: bool = False
) -> Outcome:
    peers = tuple(
        PeerOutcome(
            rank=rank,
            contributed_ratio=_ratio(peer.contributed, peer.contribution_size),
            results_ratio=_ratio(peer.results, peer.result_size),
            contribution_arrived_ms=_span_ms(peer.contribution_arrived_s),
            results_arrived_ms=_span_ms(peer.result_arrived_s),
            shard_elements=peer.result_size,
            alive=peer.alive,
        )
        for rank, peer in _others(report, own_rank).items()
    )
    return Outcome(
        rank=own_rank,
        operation=report.operation,
        bucket=pending.bucket,
        num_elements=pending.memory.count,
        num_bytes=pending.memory.num_bytes,
        exact=pending.exact,
        called_ms=report.waited_for_call_s * 1e3,
        elapsed_ms=report.elapsed_s * 1e3,
        deadline_ms=pending.deadline_ms,
        delivered_ratio=_ratio(report.delivered, report.expected),
        contributions_end=cast(StageEnd, report.contributions_end.name),
        results_end=cast(StageEnd, report.results_end.name),
        contributions_ms=report.contributions_s * 1e3,
        results_ms=report.results_s * 1e3,
        early_wait_ms=pending.early_wait_ms,
        missing=tuple(report.missing),
        peers=peers,
        late_ratio=late_ratio(report, own_rank),
        narrow_ratio=_narrow_ratio(report, own_rank),
        not_received_elements=report.not_received,
        ownerless_elements=report.ownerless,
        contributors=report.contributors,
        counted=tuple(report.counted) if with_counted else (),
    )


def _narrow_ratio(report: _native.OperationReport, own_rank: int) -> float:
    arrived = sum(peer.contributed + peer.results for peer in _others(report, own_rank).values())
    return min(1.0, report.narrow_elements / arrived) if arrived else 0.0


def heard_nobody(report: _native.OperationReport, own_rank: int) -> bool:
    """Though somebody should have been."""
    team = _team(report, own_rank)
    return bool(team) and len(_away(team)) == len(team)


def entries_dropped(report: _native.OperationReport, packets: PacketsSeen) -> tuple[int, int]:
    """Gradient entries, one per rank and element, that the network dropped on their way, and of how many; as seen here.

    By packets: what was late is not lost on the way, nor is what a rank did not send because it was away.
    """
    expected = len(report.peers) * report.total
    # Each entry travels twice, as a contribution and in a result, but for those that stay with their rank.
    ways = 2 * (1 - 1 / len(report.peers))
    return round(min(1.0, ways * packets.lost_ratio) * expected), expected


def _team(report: _native.OperationReport, own_rank: int) -> list[_native.PeerReport]:
    """Those that something was expected of: with groups not all."""
    return [peer for peer in _others(report, own_rank).values() if peer.contribution_size + peer.result_size > 0]


def _away(team: Sequence[_native.PeerReport]) -> list[_native.PeerReport]:
    return [peer for peer in team if peer.contributed + peer.results == 0]


def late_ratio(report: _native.OperationReport, own_rank: int) -> float:
    """The share of an operation that came since the one before, after its close."""
    others = _others(report, own_rank).values()
    expected = sum(peer.contribution_size + peer.result_size for peer in others)
    return min(1.0, report.late_elements / expected) if expected else 0.0


def _span_ms(span_s: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if span_s is None else (span_s[0] * 1e3, span_s[1] * 1e3)


def _ratio(part: int, whole: int) -> float:
    return 1.0 if whole == 0 else part / whole
