"""Five ways to live with lost workers, as models: what each still delivers, and what a change costs it.

All models see the same job and the same dead workers. A rate of 1 is the throughput of fault-free 1F1B. Pauses are
assumptions, stated in `PolicyCosts` with where they come from; the table of a replay prints each model in a sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from holdfast.errors import StageLost
from holdfast.reroute.normalise import normalise
from holdfast.reroute.planner import fault_free, plan_staggered
from holdfast.reroute.shape import Job, Worker
from holdfast.reroute.solver import Effort
from holdfast.reroute.store import dead_places

# A replay meets dozens of distributions of failures; a percent more or less of one of them does not show.
QUICK = Effort(seconds=0, shuffles=12, fuse=False)


@dataclass(frozen=True)
class PolicyCosts:
    """What changes cost, in seconds. Arguments of the comparison, not results of it."""

    tick_s: float = 0.1
    """Length of a tick where the profile does not say; an iteration of 27 ticks then takes 2.7 s."""
    holdfast_detect_s: float = 1.0
    """Silence after which a worker counts as dead."""
    holdfast_switch_s: float = 0.5
    """Look up the plan, form the new groups (under 0.1 s was measured for three ranks), start the iteration again."""
    copy_state_s: float = 2.0
    """A moved or returned worker copies its stage: 14 GB (3.5 billion parameters / 4 x 16 bytes) over 80 Gbit/s."""
    drop_detect_s: float = 5.0
    """torchft's heartbeat timeout."""
    templates_reconfigure_s: float = 40.0
    """Oobleck: stop, choose templates, copy missing layers, form groups again. Assumed, and it decides the result: on
    the shipped trace every 20 s more cost Oobleck about 4 points of its mean."""
    redundancy_failover_s: float = 5.0
    """Bamboo: the shadow worker takes over."""
    redundancy_reform_s: float = 60.0
    """Bamboo: pipelines are formed anew after adjacent losses. Assumed."""
    checkpoint_every_s: float = 600.0
    """Time between checkpoints; what was computed since the last one is lost. Assumed."""
    restart_s: float = 180.0
    """Start all processes, load the checkpoint, warm up. Assumed."""


@dataclass(frozen=True)
class Response:
    """What a policy does about a change."""

    rate: float
    """Throughput from now on, relative to fault-free 1F1B."""
    pause_s: float
    """Seconds without any progress first."""
    lost_s: float = 0.0
    """Seconds of work done before the change that have to be done again."""


class Policy(ABC):
    """One way to react. `respond` is called at every change with the dead workers before and after it."""

    name: str
    model: str

    def __init__(self, job: Job, costs: PolicyCosts) -> None:
        self.job = job.without_failures()
        self.costs = costs
        self.period = fault_free(self.job).period
        self.iteration_s = self.period * costs.tick_s

    @abstractmethod
    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        """What happens when `before` becomes `after`."""

    def _pipeline_period(self, microbatches: int, stages: int | None = None, stretch: float = 1.0) -> float:
        """Period of one 1F1B pipeline: `stretch` times the job's slowest stage, over so many stages."""
        depth = stages if stages is not None else self.job.shape.stages
        slowest = max(cost.total for cost in self.job.costs)
        return (microbatches + depth - 1) * slowest * stretch + max(cost.optimizer for cost in self.job.costs)

    @property
    def _batch(self) -> int:
        return self.job.shape.pipelines * self.job.shape.microbatches


class Reroute(Policy):
    name = "Holdfast"
    model = (
        "re-routes: the planner's staggered plan for the normalised failures, never counted as faster than fault-free "
        "1F1B; a loss costs detection, a switch and one iteration; workers move, and copy a stage's state, only where "
        "that helps"
    )

    def __init__(self, job: Job, costs: PolicyCosts) -> None:
        super().__init__(job, costs)
        self._rates: dict[tuple[int, ...], float] = {(0,) * job.shape.stages: 1.0}

    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        costs = self.costs
        try:
            spread = normalise(self.job, after)
        except StageLost:
            # Nobody holds the stage's weights: back to the checkpoint, on whatever is left.
            lost = (now_s % costs.checkpoint_every_s) + costs.restart_s
            return Response(self._after_restart(len(after)), costs.holdfast_detect_s + costs.restart_s, lost_s=lost)
        here = self._rate(self.job.with_failed(after).failures_per_stage)
        rate = max(here, self._rate(spread.failures_per_stage))
        pause = costs.holdfast_switch_s
        if after - before:
            pause += costs.holdfast_detect_s + self.iteration_s
        if rate > here:
            pause += costs.copy_state_s
        # A returning worker copies its state while the others go on; only the switch is felt.
        return Response(rate, pause)

    def _rate(self, spread: tuple[int, ...]) -> float:
        if spread not in self._rates:
            broken = self.job.with_failed(dead_places(self.job, spread))
            schedule, _ = plan_staggered(broken, QUICK)
            self._rates[spread] = min(1.0, self.period / schedule.period)
        return self._rates[spread]

    def _after_restart(self, num_dead: int) -> float:
        pipelines = (self.job.shape.num_workers - num_dead) // self.job.shape.stages
        return self.period / self._pipeline_period(-(-self._batch // pipelines)) if pipelines else 0.0


class DropPipeline(Policy):
    name = "drop pipeline"
    model = (
        "a pipeline with a dead worker contributes nothing until that worker is back, as torchft drops a replica; the "
        "batch shrinks; a loss costs the heartbeat timeout and one iteration"
    )

    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        broken = {worker.pipeline for worker in after}
        pipelines = self.job.shape.pipelines
        pause = self.iteration_s
        if after - before:
            pause += self.costs.drop_detect_s
        return Response((pipelines - len(broken)) / pipelines, pause)


class Templates(Policy):
    name = "templates (Oobleck)"
    model = (
        "pipelines of different depth from all live workers (from S-1 to 2S workers each, layers divided evenly, 8 per "
        "stage), the batch shared out so that they end together; every change stops all for a reconfiguration"
    )
    layers_per_stage = 8

    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        period = self._best_period(self.job.shape.num_workers - len(after))
        rate = min(1.0, self.period / period) if period else 0.0
        return Response(rate, self.costs.templates_reconfigure_s + self.iteration_s)

    def _best_period(self, workers: int) -> float | None:
        stages = self.job.shape.stages
        fewest, most = max(1, stages - 1), 2 * stages
        periods = []
        for pipelines in range(1, workers // fewest + 1):
            depth, deeper = divmod(workers, pipelines)
            if depth + (1 if deeper else 0) <= most:
                periods.append(self._shared_out([depth + 1] * deeper + [depth] * (pipelines - deeper)))
        return min(periods, default=None)

    def _shared_out(self, depths: list[int]) -> float:
        """Give each micro-batch to the pipeline that ends first with it."""
        layers = self.layers_per_stage * self.job.shape.stages
        stretches = [-(-layers // depth) / self.layers_per_stage for depth in depths]
        counts = [0] * len(depths)
        ends = [0.0] * len(depths)
        for _ in range(self._batch):
            nexts = [
                self._pipeline_period(count + 1, depth, stretch)
                for count, depth, stretch in zip(counts, depths, stretches, strict=True)
            ]
            chosen = nexts.index(min(nexts))
            counts[chosen] += 1
            ends[chosen] = nexts[chosen]
        return max(ends)


class Redundancy(Policy):
    name = "redundancy (Bamboo)"
    model = (
        "every worker also runs the forward of its successor, always and not hidden in bubbles; after a loss the "
        "predecessor runs both stages "
        "and slows its pipeline, hence all; after adjacent losses, or if it is faster, whole pipelines are formed anew"
    )

    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        shape, costs = self.job.shape, self.costs
        whole = (shape.num_workers - len(after)) // shape.stages
        reformed = min(whole, shape.pipelines) / shape.pipelines * self.period / self._redundant_period(0)
        dead_in = [sorted(w.stage for w in after if w.pipeline == k) for k in range(shape.pipelines)]
        # Stage 0's shadow is the last worker, so first and last are adjacent too.
        shadowed = [
            all((stage - 1) % shape.stages not in stages for stage in stages) and len(stages) < shape.stages
            for stages in dead_in
        ]
        usable = [stages for stages, good in zip(dead_in, shadowed, strict=True) if good]
        degraded = 0.0
        if usable:
            doubled = max(1 if stages else 0 for stages in usable)
            degraded = len(usable) / shape.pipelines * self.period / self._redundant_period(doubled)
        reform = reformed > degraded or not all(shadowed)
        pause = costs.redundancy_reform_s if reform and after else costs.redundancy_failover_s
        return Response(max(reformed, degraded), pause + self.iteration_s)

    def _redundant_period(self, doubled: int) -> float:
        """1F1B with one more forward per micro-batch; with a doubled stage, its work sets the pace.

        None of the extra forwards is hidden in bubbles. That is the pessimistic end; it was chosen because Bamboo's
        published mean (about 0.58 of fault-free, spec section 7) is out of reach of a model that hides them.
        """
        shape = self.job.shape
        slowest = max(cost.total + cost.forward for cost in self.job.costs)
        optimizer = max(cost.optimizer for cost in self.job.costs)
        return (shape.microbatches + shape.stages - 1 + doubled * shape.microbatches) * slowest + optimizer


class Restart(Policy):
    name = "restart"
    model = (
        "a loss stops the job: work since the last checkpoint is lost, processes start again with as many whole "
        "pipelines as there are workers for, the batch shared out among them; returning workers are waited for until "
        "they make a whole pipeline, then the job checkpoints and restarts"
    )

    def respond(self, before: frozenset[Worker], after: frozenset[Worker], now_s: float) -> Response:
        costs = self.costs
        pipelines = self._pipelines(after)
        rate = self.period / self._pipeline_period(-(-self._batch // pipelines)) if pipelines else 0.0
        if after - before:
            return Response(min(1.0, rate), costs.restart_s, lost_s=now_s % costs.checkpoint_every_s)
        return Response(min(1.0, rate), costs.restart_s if pipelines > self._pipelines(before) else 0.0)

    def _pipelines(self, dead: frozenset[Worker]) -> int:
        return (self.job.shape.num_workers - len(dead)) // self.job.shape.stages


POLICIES: tuple[type[Policy], ...] = (Reroute, DropPipeline, Templates, Redundancy, Restart)
