from __future__ import annotations

from collections import Counter

from holdfast.reroute import plan, uniform_job
from holdfast.reroute.fusing import fuse_where_free
from holdfast.reroute.greedy import Rule, list_schedule
from holdfast.reroute.timing import Clock
from holdfast.reroute.workload import Workload


def test_backwards_are_split_only_where_it_pays() -> None:
    """Spec 3: the figure's schedule splits on the helpers and a few others; everything else stays fused."""
    made = plan(uniform_job(4, 3, 6, [(1, 2)]))
    assert 0 < made.staggered.num_split < made.staggered.work.num_cells // 2
    split_at = Counter(op.worker.stage for op in made.staggered.operations() if op.op == "I")
    assert split_at[0] <= 1  # nobody waits for stage 0's gradients
    assert split_at[2] > split_at[1]


def test_nothing_is_fused_if_the_period_would_not_survive_it() -> None:
    work = Workload(uniform_job(4, 3, 6, [(1, 2)]))
    orders = list_schedule(work, Rule(split=True))
    assert fuse_where_free(work, orders, lambda tried: False).fused == orders.fused


def test_everything_is_fused_if_the_period_does_not_matter() -> None:
    work = Workload(uniform_job(4, 3, 6, [(1, 2)]))
    fused = fuse_where_free(work, list_schedule(work, Rule(split=True)), lambda tried: True)
    assert all(fused.fused)
    assert Clock(work).earliest(fused) is not None
