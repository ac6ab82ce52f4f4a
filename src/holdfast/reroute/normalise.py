"""Failure normalisation: which healthy worker should move to which stage, and is it worth it (spec 5.3).

Only the number of dead workers per stage matters for the period, because peers of a stage hold the same weights. Two
dead workers in one stage hurt more than one in each of two stages; a healthy worker of a stage with fewer losses can
take the place of a dead one after copying that stage's parameters and optimizer state from a live peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest

from holdfast.errors import StageLost
from holdfast.reroute.bound import stage_period, stage_work
from holdfast.reroute.shape import Job, Worker


@dataclass(frozen=True)
class Move:
    """A healthy worker becomes a replica of another stage; its old place is now the dead one."""

    worker: Worker
    """Who moves."""
    takes_place_of: Worker
    """The dead worker whose place it takes."""
    state_to_copy: int
    """Parameters and optimizer state of the new stage, in the profile's memory unit: the price of the move."""


@dataclass(frozen=True)
class Normalisation:
    """The best distribution of the same number of failures, and how to get there."""

    failures_per_stage: tuple[int, ...]
    moves: tuple[Move, ...]
    failed: frozenset[Worker]
    """The dead places after the moves."""
    bound_before: int
    """Closed-form period without any move."""
    bound_after: int
    """Closed-form period after the moves."""

    @property
    def state_to_copy(self) -> int:
        return sum(move.state_to_copy for move in self.moves)


def best_spread(job: Job, num_failed: int, actual: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """How many failures each stage should bear."""
    return best_spreads(job, num_failed, actual, limit=1)[0]


def best_spreads(
    job: Job, num_failed: int, actual: tuple[int, ...] | None = None, limit: int = 1
) -> list[tuple[int, ...]]:
    """The distributions with the shortest period, at most `limit` of them, best first.

    Among equal periods: fewest moves from `actual`, then evenly (least sum of the stages' squared work, so that
    the others keep slack), then later stages, to which 1F1B leaves more spare memory. A DP over stages that keeps
    the `limit` best ways to bear each number of failures.
    """
    stages, most = job.shape.stages, job.shape.pipelines - 1
    if num_failed > stages * most:
        raise StageLost(
            f"{num_failed} of {job.shape.num_workers} workers dead leaves some of the {stages} stages without any.",
            what_to_try=f"plan for at most {stages * most} failures, or restart with fewer pipelines.",
        )
    period = shortest_period(job, num_failed)
    # Per number of failures so far: (moves, squares, later stages first, the distribution itself)
    best: list[list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]] = [[] for _ in range(num_failed + 1)]
    best[0] = [(0, 0, (), ())]
    for stage in range(stages):
        periods = [stage_period(job, stage, lost) for lost in range(min(most, num_failed) + 1)]
        work = [stage_work(job, stage, lost) for lost in range(len(periods))]
        here = actual[stage] if actual is not None else 0
        best = [
            nsmallest(
                limit,
                (
                    (moves + max(0, here - lost), squares + work[lost] ** 2, (-lost, *later), (*spread, lost))
                    for lost in range(min(total, most) + 1)
                    if periods[lost] <= period
                    for moves, squares, later, spread in best[total - lost]
                ),
            )
            for total in range(num_failed + 1)
        ]
    return [spread for _, _, _, spread in best[num_failed]]


def shortest_period(job: Job, num_failed: int) -> int:
    """DP[s][x] = min over f of max(DP[s-1][x-f], C(s,f)): the shortest period so many failures allow (spec 5.3)."""
    most = job.shape.pipelines - 1
    endless = 1 << 62
    best = [0] + [endless] * num_failed
    for stage in range(job.shape.stages):
        cost = [stage_period(job, stage, lost) for lost in range(min(most, num_failed) + 1)]
        best = [
            min(max(best[total - lost], cost[lost]) for lost in range(min(total, most) + 1))
            for total in range(num_failed + 1)
        ]
    return best[num_failed]


def normalise(job: Job, failed: frozenset[Worker] | None = None) -> Normalisation:
    """Spread the dead places of a job as well as possible.

    `failed` (default: the job's) may kill a whole stage: then there is nobody to copy from, which is refused.
    """
    dead = job.failed if failed is None else failed
    actual = job.with_failed(dead).failures_per_stage
    target = best_spread(job, len(dead), actual)
    moves = moves_between(job, dead, target)
    after = frozenset(dead - {move.takes_place_of for move in moves} | {move.worker for move in moves})
    stages = range(job.shape.stages)
    return Normalisation(
        failures_per_stage=target,
        moves=moves,
        failed=after,
        bound_before=max(stage_period(job, stage, actual[stage]) for stage in stages),
        bound_after=max(stage_period(job, stage, target[stage]) for stage in stages),
    )


def moves_between(job: Job, dead: frozenset[Worker], target: tuple[int, ...]) -> tuple[Move, ...]:
    """Move healthy workers from stages with fewer failures than `target` into those with more.

    Prefers a mover from a pipeline that is already broken, so that whole pipelines stay whole.
    """
    lost = [0] * job.shape.stages
    for worker in dead:
        lost[worker.stage] += 1
    broken = {worker.pipeline for worker in dead}
    places = sorted(dead)
    moves: list[Move] = []
    gone: set[Worker] = set(dead)
    for stage in range(job.shape.stages):
        while lost[stage] > target[stage]:
            place = next(worker for worker in places if worker.stage == stage)
            places.remove(place)
            donor = next(other for other in range(job.shape.stages) if lost[other] < target[other])
            candidates = [
                Worker(pipeline, donor)
                for pipeline in range(job.shape.pipelines)
                if Worker(pipeline, donor) not in gone
            ]
            mover = min(candidates, key=lambda worker: (worker.pipeline not in broken, worker.pipeline))
            gone.add(mover)
            moves.append(Move(mover, place, job.costs[stage].state))
            lost[stage] -= 1
            lost[donor] += 1
    return tuple(moves)
