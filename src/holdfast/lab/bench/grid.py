"""A grid of measurements: every profile with every size, all peers in turns in each cell. Noisy cells are repeated."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.config import Config
from holdfast.lab.bench import slowest
from holdfast.lab.bench.row import LOOPBACK, Measured, Operation, Row, Setting, Tally, summarise, wire_bytes_per_rank
from holdfast.lab.bench.session import PeerFailed, Session
from holdfast.lab.cloud import Cloud
from holdfast.lab.peer import Peer
from holdfast.lab.stolen import ProcessorTime

# Warm-up fills caches, lets TCP find its window and Holdfast measure its bound; it is not counted.
WARMUP_ITERATIONS = 24
MAX_ATTEMPTS = 3
_LOOK_BACK_NS = 110 * 1_000_000_000  # the switch remembers 120 s


@dataclass(frozen=True)
class Plan:
    peers: Sequence[Peer]
    num_ranks: int
    profiles: Sequence[str]
    """Networks of the lab; none: plain loopback."""
    sizes: Sequence[int]
    """Bytes of float32."""
    iterations: int
    config: Config
    seed: int = 0
    max_attempts: int = MAX_ATTEMPTS
    """At a cell that the machine disturbs."""
    trace_folder: Path | None = None
    """Where each Holdfast peer's slowest operation is written down."""

    @property
    def cells(self) -> list[tuple[str, int]]:
        return [(profile, size) for profile in self.profiles or [LOOPBACK] for size in self.sizes]


def missing_cells(plan: Plan, rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Cells of the plan for which the rows do not hold every peer."""
    have = {(row.profile, row.bytes, row.peer) for row in rows}
    return [cell for cell in plan.cells if any((*cell, peer.name) not in have for peer in plan.peers)]


def run(
    plan: Plan,
    cells: Sequence[tuple[str, int]] | None = None,
    on_progress: Callable[[str, int], None] = lambda _what, _done: None,
    on_failure: Callable[[str, PeerFailed], None] = lambda _profile, _failure: None,
) -> Iterator[list[Row]]:
    """The rows of one cell after the other. `on_progress` hears what is measured and how many iterations are done.

    A peer that fails on a network has no rows from there on; the others go on without it, and `on_failure` hears why.
    """
    wanted = list(plan.cells if cells is None else cells)
    done = 0
    for profile in dict.fromkeys(profile for profile, _ in wanted):
        sizes = [size for of, size in wanted if of == profile]
        peers = list(plan.peers)
        while sizes and peers:
            on_progress(f"starting {plan.num_ranks} ranks", done)
            with contextlib.ExitStack() as stack:
                try:
                    cloud = (
                        stack.enter_context(Cloud(plan.num_ranks, profile, seed=plan.seed)) if plan.profiles else None
                    )
                    session = stack.enter_context(Session(peers, plan.num_ranks, plan.config, cloud))
                    bits_per_s = None if cloud is None else cloud.bits_per_s
                    while sizes:
                        setting = Setting(
                            profile, plan.num_ranks, sizes[0], plan.seed, plan.config.deadline_ms, bits_per_s
                        )
                        rows = _measure_cell(plan, peers, session, setting, partial(_ahead, on_progress, done))
                        done += WARMUP_ITERATIONS + plan.iterations
                        sizes.pop(0)
                        yield rows
                except PeerFailed as failure:
                    peers = [peer for peer in peers if peer.name != failure.peer]
                    on_failure(profile, failure)


def _ahead(on_progress: Callable[[str, int], None], before: int, what: str, count: int) -> None:
    on_progress(what, before + count)


def _measure_cell(
    plan: Plan, peers: Sequence[Peer], session: Session, setting: Setting, on_progress: Callable[[str, int], None]
) -> list[Row]:
    """The attempt in which the switch kept its time; if there is none, the one in which it was least late."""
    best: list[Row] = []
    traced: dict[str, Tally] = {}
    for attempt in range(1, plan.max_attempts + 1):
        again = f", attempt {attempt}" if attempt > 1 else ""
        name = f"{setting.profile} {setting.num_bytes} bytes{again}"
        tallies = _take_turns(plan, peers, session, setting, partial(on_progress, name))
        rows = [summarise(peer, setting, tallies[peer.name], attempt) for peer in peers]
        if not best or _latest(rows) < _latest(best):
            best, traced = rows, tallies
        if not any(row.noisy for row in rows):
            break
    if plan.trace_folder is not None:
        found = {peer: tally.slowest for peer, tally in traced.items() if tally.slowest is not None}
        slowest.write(plan.trace_folder, setting, found, plan.iterations)
    return [dataclasses.replace(row, attempts=attempt) for row in best]


def _latest(rows: Sequence[Row]) -> float:
    return max(row.late_p999_ms or 0.0 for row in rows)


def _take_turns(
    plan: Plan, peers: Sequence[Peer], session: Session, setting: Setting, on_progress: Callable[[int], None]
) -> dict[str, Tally]:
    tallies = {peer.name: Tally() for peer in peers}
    session.set_size(setting.num_bytes)
    for iteration in range(WARMUP_ITERATIONS + plan.iterations):
        # Whoever follows a peer meets the queues it left, so everybody follows everybody equally often.
        order = random.Random(f"{plan.seed}/{iteration}")
        for peer in order.sample(list(peers), len(peers)):
            if session.cloud is not None:
                session.cloud.switch.reset()
            before = ProcessorTime.now()
            start_ns, measured = session.operation(peer)
            if iteration >= WARMUP_ITERATIONS:
                tallies[peer.name].processor += ProcessorTime.now() - before
                _add(tallies[peer.name], peer, session, setting, start_ns, measured)
                if plan.trace_folder is not None:
                    _keep_slowest(tallies[peer.name], peer, session, start_ns)
        on_progress(iteration + 1)
    return tallies


def _add(
    tally: Tally, peer: Peer, session: Session, setting: Setting, start_ns: int, measured: Sequence[Measured]
) -> None:
    cloud = session.cloud
    if cloud is None:
        tally.operations.append(observe(start_ns, measured, (), None))
        return
    report = cloud.switch.report()
    tally.lateness.add(report.lateness_counts)
    tally.sent += sum(port.packets_from_host for port in report.ports)
    tally.lost.update(report.losses)
    if max(each.ended_ns for each in measured) - start_ns > _LOOK_BACK_NS:
        tally.operations.append(observe(start_ns, measured, (), None))  # longer than the switch remembers
        return
    frozen = frozen_hosts(cloud, start_ns, measured)
    traffic = traffic_to_wait_for(
        wire_bytes_per_rank(peer, setting.num_ranks, setting.num_bytes), len(measured), frozen
    )
    bound_s = cloud.switch.capacity_bound_s(start_ns, traffic, traffic)
    tally.operations.append(observe(start_ns, measured, frozen, bound_s))


def _keep_slowest(tally: Tally, peer: Peer, session: Session, start_ns: int) -> None:
    """Only a record is asked for: few operations are, and the others go undisturbed."""
    latest = tally.operations[-1]
    is_record = tally.slowest is None or latest.seconds > tally.slowest.operation.seconds
    if is_record and (witnesses := session.last_seen(peer)):
        tally.slowest = slowest.Slowest(latest, start_ns, witnesses)


def traffic_to_wait_for(bytes_per_rank: int, num_ranks: int, frozen: Sequence[int]) -> list[int]:
    """By host. Who is frozen is not waited for, neither by the clock nor by the bound; unless all of them are."""
    num_live = num_ranks - len(frozen)
    if num_live in (0, num_ranks):
        return [bytes_per_rank] * num_ranks
    among_the_live = bytes_per_rank * (num_live - 1) // max(1, num_ranks - 1)
    return [0 if host in frozen else among_the_live for host in range(num_ranks)]


def frozen_hosts(cloud: Cloud, start_ns: int, measured: Sequence[Measured]) -> tuple[int, ...]:
    """Hosts whose network stood still at some time while their own rank was at it."""
    if not any(port.frozen for port in cloud.conditions.ports):
        return ()
    return tuple(
        host
        for host, each in enumerate(measured)
        if cloud.switch.frozen_s(start_ns, max(each.ended_ns, start_ns))[host] > 0
    )


def observe(
    start_ns: int, measured: Sequence[Measured], frozen: Sequence[int], capacity_bound_s: float | None
) -> Operation:
    """One operation out of what its ranks measured. Where all hosts were frozen, all of them count."""
    counting = [rank for rank in range(len(measured)) if rank not in frozen] or list(range(len(measured)))
    between = [
        measured[rank].missing_by_rank.get(other, 0.0) for rank in counting for other in counting if other != rank
    ]
    late = [each.late_ratio for each in measured if each.late_ratio is not None]
    narrow_ratio = sum(each.narrow_ratio for each in measured) / len(measured)
    return Operation(
        seconds=max(measured[rank].ended_ns - start_ns for rank in counting) / 1e9,
        delivered_ratio=sum(measured[rank].delivered_ratio for rank in counting) / len(counting),
        wrong=sum(each.wrong_if_narrow if narrow_ratio > 0 else each.wrong for each in measured),
        capacity_bound_s=capacity_bound_s,
        frozen_hosts=tuple(frozen),
        missing_elsewhere=sum(between) / len(between) if between else 0.0,
        woke_late_s=(max(each.began_ns for each in measured) - start_ns) / 1e9,
        stages=tuple(stage for each in measured for stage in each.stages),
        late_ratio=sum(late) / len(late) if late else None,
        narrow_ratio=narrow_ratio,
    )
