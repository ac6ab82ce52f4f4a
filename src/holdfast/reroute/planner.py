"""From a job to a plan.

The paper's steps are planned one by one, so that what each brings can be seen: fault-free 1F1B, re-routed,
+ decoupled, + staggered. The last two are planned for the fault-free job as well, because a schedule without bubbles
(zero-bubble) is the honest thing to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast.reroute.bound import Bounds, bounds
from holdfast.reroute.greedy import Rule
from holdfast.reroute.one_forward_one_backward import one_forward_one_backward
from holdfast.reroute.schedule import Schedule
from holdfast.reroute.search import Notice, Search, SearchReport
from holdfast.reroute.shape import Job
from holdfast.reroute.solver import Effort
from holdfast.reroute.timing import Clock
from holdfast.reroute.workload import Workload


@dataclass
class Plan:
    """The paper's four schedules of one job, what bounds them, and how each was found."""

    job: Job
    fault_free: Schedule
    """1F1B of the job with every worker alive."""
    rerouted: Schedule
    """Dead workers' micro-batches on live peers, fused backward, all stages step together: a plain list schedule."""
    rerouted_best: Schedule
    """The same, the shortest that was found."""
    decoupled: Schedule
    """+ backward split where it pays."""
    staggered: Schedule
    """+ every stage steps by itself: the plan that is executed."""
    fault_free_decoupled: Schedule
    fault_free_staggered: Schedule
    limits: Bounds
    searches: dict[str, SearchReport] = field(default_factory=dict)

    @property
    def steps(self) -> dict[str, Schedule]:
        """The four schedules of the paper, in its order."""
        return {
            "fault_free": self.fault_free,
            "rerouted": self.rerouted,
            "decoupled": self.decoupled,
            "staggered": self.staggered,
        }

    @property
    def schedules(self) -> dict[str, Schedule]:
        """All seven."""
        return self.steps | {
            "rerouted_best": self.rerouted_best,
            "fault_free_decoupled": self.fault_free_decoupled,
            "fault_free_staggered": self.fault_free_staggered,
        }

    @property
    def throughput_ratio(self) -> float:
        """Throughput of the staggered plan relative to fault-free 1F1B; the global batch is always the same."""
        return self.fault_free.period / self.staggered.period

    @property
    def best_throughput_ratio(self) -> float:
        """The same relative to the best fault-free schedule known, which may be far shorter than 1F1B."""
        return min(self.fault_free.period, self.fault_free_staggered.period) / self.staggered.period


def plan(job: Job, effort: Effort | None = None, notice: Notice | None = None) -> Plan:
    """Plan all steps of a job; `effort` bounds the search, `notice` hears of progress."""
    effort = effort if effort is not None else Effort()
    searches: dict[str, SearchReport] = {}
    healthy = fault_free(job)
    bare_decoupled, bare_staggered = _plan_without_failures(job, effort, notice, searches)
    if not job.failed:
        searches["decoupled"] = searches["fault_free_decoupled"]
        searches["staggered"] = searches["fault_free_staggered"]
        steps = (healthy, healthy, bare_decoupled, bare_staggered)
    else:
        search = Search(job, effort, notice)
        naive = search.listed(Rule(split=False))
        best, searches["rerouted_best"] = search.run("rerouted_best", [naive], split=False, staggered=False)
        decoupled, searches["decoupled"] = search.run(
            "decoupled", [best.orders], split=True, staggered=False, executed=False
        )
        known = [best.orders, decoupled.orders]
        staggered, searches["staggered"] = search.run("staggered", known, split=True, staggered=True)
        steps = (search.schedule(naive, 0, staggered=False), best, decoupled, staggered)
    return Plan(job, healthy, *steps, bare_decoupled, bare_staggered, bounds(job), searches)


def fault_free(job: Job) -> Schedule:
    """1F1B of the job with every worker alive."""
    work = Workload(job.without_failures())
    orders = one_forward_one_backward(work)
    timing = Clock(work).earliest(orders)
    assert timing is not None, "1F1B without failures cannot wait for itself"
    return Schedule(work, orders, timing, synchronous=True)


def plan_staggered(job: Job, effort: Effort | None = None) -> tuple[Schedule, SearchReport]:
    """Only the last step, the schedule that is executed."""
    effort = effort if effort is not None else Effort()
    if not job.failed:
        searches: dict[str, SearchReport] = {}
        _, staggered = _plan_without_failures(job, effort, None, searches)
        return staggered, searches["fault_free_staggered"]
    return Search(job, effort).run("staggered", split=True, staggered=True)


def _plan_without_failures(
    job: Job, effort: Effort, notice: Notice | None, searches: dict[str, SearchReport]
) -> tuple[Schedule, Schedule]:
    """Decoupled and staggered. Without failures pipelines have nothing to do with each other: plan one, repeat it."""
    bare = job.without_failures()
    one = replace(bare, shape=replace(bare.shape, pipelines=1))
    search = Search(one, effort, notice)
    plain = fault_free(one).orders
    decoupled, searches["fault_free_decoupled"] = search.run(
        "fault_free_decoupled", [plain], split=True, staggered=False, executed=False
    )
    staggered, searches["fault_free_staggered"] = search.run(
        "fault_free_staggered", [plain, decoupled.orders], split=True, staggered=True, executed=not job.failed
    )
    return decoupled.for_every_pipeline(bare), staggered.for_every_pipeline(bare)
