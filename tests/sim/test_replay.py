"""Two beds, one code: what a real rank went through on real sockets, fed to the simulator's endpoint, ends the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rank_processes import Member

from holdfast import sim
from holdfast.bridge.tensors import memory_of
from holdfast.reduce.transpose import TransposeAllReduce


def _record_one_operation(member: Member, deadline_ms: float, absent: int | None) -> dict[str, Any]:
    link = member.join(record=True, deadline_ms=deadline_ms)
    reducer = TransposeAllReduce(link)
    member.barrier()
    gradient = torch.full((100_000,), float(member.rank))
    outcome = None
    if member.rank != absent:
        outcome = reducer.finish(reducer.start(memory_of(gradient)))
    member.barrier()  # an absent rank serves its duty meanwhile
    trace = link.engine.recording()
    delivered = None if outcome is None else round(outcome.delivered_ratio * gradient.numel() * member.num_ranks)
    return {"trace": trace, "delivered": delivered, "missing": outcome and outcome.missing}


@pytest.mark.parametrize("absent", [None, 2], ids=["everybody calls", "rank 2 only serves its duty"])
def test_a_real_operation_replayed_in_the_simulator_has_the_same_outcome(
    run_ranks: Callable[..., list[Any]], absent: int | None
) -> None:
    deadline_ms = 20_000.0 if absent is None else 300.0
    for rank, real in enumerate(run_ranks(_record_one_operation, 3, deadline_ms, absent)):
        replayed = sim.replay(real["trace"])
        assert replayed.divergence == "", f"rank {rank}"
        assert replayed.num_datagrams_in > 0
        assert replayed.num_batches_out > 0
        assert replayed.num_reports_recorded == len(replayed.reports) == (0 if rank == absent else 1)
        for report in replayed.reports:
            assert report.delivered == real["delivered"]
            assert tuple(report.missing) == real["missing"]


def test_a_trace_that_was_tampered_with_diverges(run_ranks: Callable[..., list[Any]]) -> None:
    trace = bytearray(run_ranks(_record_one_operation, 2, 20_000.0, None)[0]["trace"])
    gradient = trace.find(torch.zeros(1024).numpy().tobytes())
    assert gradient > 0, "rank 0 contributed zeros"
    trace[gradient + 403] ^= 0x40  # one 0.0 becomes 2.0
    assert sim.replay(bytes(trace)).divergence != ""
