"""Several hosts with several ranks each, in real processes that pretend to be on different hosts: what each step sums,
and what all ranks of a host are told when something was lost on the way to one of them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from rank_processes import Member
from transpose_oracle import digest_of

from holdfast.bridge.tensors import memory_of
from holdfast.link import interface
from holdfast.link.link import Link
from holdfast.reduce.host_groups import HostGroups
from holdfast.reduce.reducer import reducer_for
from holdfast.reduce.transpose import TransposeAllReduce

# Fewer elements than ranks of a host, than ranks, than a block; several pieces of shared memory.
COUNTS = (1, 2, 3, 5, 1_001, 300_007)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WARM_UP = 2
LAST_OPERATION = 30


def on_hosts(member: Member, per_host: int, **settings: Any) -> tuple[Link, TransposeAllReduce]:
    interface.host_identity = lambda: f"host-{member.rank // per_host}"  # this process ends with the test
    interface.is_loopback = lambda _address: False
    settings = {"shared_memory": True, "interface": "lo", "warmup_operations": WARM_UP, **settings}
    link = member.join(**settings)
    reducer = reducer_for(link)
    assert isinstance(reducer, TransposeAllReduce)
    return link, reducer


def gradient(rank: int, count: int, dtype: torch.dtype, round_: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000 * round_ + rank)
    return torch.randn(count, generator=generator).to(dtype)


def averages(member: Member, per_host: int) -> list[tuple[bytes, float]]:
    """Each average, and how far it is from one in float64, in units of the last place."""
    link, reducer = on_hosts(member, per_host, deadline_floor_ms=8_000.0)
    assert link.host_meetings is not None
    assert link.agreement.host_ranks == range(
        member.rank // per_host * per_host, (member.rank // per_host + 1) * per_host
    )
    found = []
    rounds = [(count, dtype) for dtype in DTYPES for count in COUNTS]
    for round_, (count, dtype) in enumerate([(COUNTS[-1], torch.float32)] * WARM_UP + rounds):
        own = gradient(member.rank, count, dtype, round_)
        outcome = reducer.finish(reducer.start(memory_of(own), bucket=3))
        assert outcome.complete, outcome.describe()
        assert outcome.num_elements == count
        assert outcome.contributors == member.num_ranks
        assert outcome.exact == (round_ < WARM_UP)
        everybody = torch.stack([gradient(rank, count, dtype, round_).double() for rank in range(member.num_ranks)])
        scale = everybody.abs().sum(0) / member.num_ranks
        error = ((own.double() - everybody.mean(0)).abs() / scale.clamp_min(1e-300)).max().item()
        found.append((own.view(torch.uint8).numpy().tobytes()[:4_096], error / torch.finfo(dtype).eps))
    total = torch.full((7,), float(member.rank))
    reducer.finish(reducer.start(memory_of(total), average=False, exact=True))
    assert (total == sum(range(member.num_ranks))).all()
    assert any("summed in shared memory within a host" in line for line in reducer.explain())
    member.barrier()
    return found


@pytest.mark.parametrize(("num_ranks", "per_host"), [(6, 2), (6, 3)])
def test_averages_are_true_and_bit_for_bit_alike(run_ranks, num_ranks: int, per_host: int) -> None:
    first, *others = run_ranks(averages, num_ranks, per_host)
    assert max(error for _, error in first) <= 2  # narrow ones are rounded twice: within the host and between hosts
    for other in others:
        assert [digest for digest, _ in other] == [digest for digest, _ in first]


def several_in_flight(member: Member) -> list[int]:
    _, reducer = on_hosts(member, 2, deadline_floor_ms=8_000.0)
    operations = []
    for _ in range(2):
        started = []
        for number in range(8):
            own = torch.full((50_000 + number,), float(member.rank + number))
            started.append((own, reducer.start(memory_of(own), layout=number)))
            time.sleep(0.002 * (member.rank % 2))
        for number, (own, pending) in reversed(list(enumerate(started))):
            operations.append(reducer.finish(pending).operation)
            assert (own == number + (member.num_ranks - 1) / 2).all()
    member.barrier()
    return operations


def test_operations_may_be_in_flight_and_finished_in_any_order(run_ranks) -> None:
    first, *others = run_ranks(several_in_flight, 4)
    assert all(other == first for other in others)


def warm_up(reducer: TransposeAllReduce, count: int) -> None:
    for _ in range(WARM_UP + 1):
        reducer.finish(reducer.start(memory_of(torch.zeros(count))))


def one_counterpart_is_late(member: Member) -> tuple[Any, ...]:
    """Rank 3 has its host's sum and keeps it until the others have given it up."""
    count = 10_000
    _, reducer = on_hosts(member, 2, deadline_floor_ms=400.0)
    warm_up(reducer, count)
    member.barrier()
    if member.rank == 3:
        on_summed = HostGroups._on_summed

        def after_a_while(*arguments: Any) -> None:
            time.sleep(1.2)
            on_summed(*arguments)

        HostGroups._on_summed = after_a_while  # type: ignore[method-assign]
    own = torch.full((count,), 1.0 + member.rank)
    outcome = reducer.finish(reducer.start(memory_of(own)))
    member.barrier()
    assert outcome.elapsed_ms < 10_000
    halves = [set(half.tolist()) for half in (own[: count // 2], own[count // 2 :])]
    return halves, outcome.missing, outcome.delivered_ratio, outcome.not_received_elements


def test_what_does_not_reach_one_rank_of_a_host_all_of_them_know_to_be_missing(run_ranks) -> None:
    told = run_ranks(one_counterpart_is_late, 4)
    for halves, missing, delivered_ratio, _ in told:
        assert halves == [{2.5}, {0.0}]
        assert sum(end - begin for begin, end in missing) == 5_000
        assert missing[0][0] == 5_000
        assert missing[-1][1] == 10_000
        assert delivered_ratio == 0.5
    # For all that the first host can tell, the other one may have it; the other one has heard that most were with it.
    assert [not_received for *_, not_received in told] == [5_000, 5_000, 0, 0]


def goes_on_without_the_dead(member: Member, dies: int) -> list[tuple[Any, ...]]:
    """Everybody has the same gradient, so that whatever is left of it is the mean."""
    _, reducer = on_hosts(member, 2, silence_limit_ms=600.0, deadline_floor_ms=300.0)
    warm_up(reducer, 20_000)
    seen: list[tuple[Any, ...]] = []
    round_ = 0
    while not seen or seen[-1][0] < LAST_OPERATION:
        round_ += 1
        own = torch.full((20_000,), float(round_))
        outcome = reducer.finish(reducer.start(memory_of(own)))
        kept = torch.ones(20_000, dtype=torch.bool)
        for begin, end in outcome.missing:
            kept[begin:end] = False
        assert (own[kept] == float(round_)).all()
        assert (own[~kept] == 0).all()
        assert outcome.elapsed_ms < 5_000
        sure = outcome.not_received_elements == 0
        seen.append((outcome.operation, digest_of(own) if sure else None, outcome.delivered_ratio))
        if round_ == 4:
            member.say(f"running {member.rank}")
            if member.rank == dies:
                time.sleep(60)
    assert any(line.endswith("shared memory has failed") for line in reducer.explain())
    member.say(f"over {member.rank}")
    for rank in range(member.num_ranks):
        if rank != dies:
            member.hear(f"over {rank}")
    return seen


def test_without_a_rank_that_died_the_others_go_on_among_all_of_them(start_ranks) -> None:
    dies = 1
    with start_ranks(goes_on_without_the_dead, 4, dies) as ranks:
        ranks.store.wait([f"said/running {rank}" for rank in range(4)])
        ranks.kill(dies)
        survivors = [seen for seen in ranks.results(dead={dies}) if seen is not None]
    assert len(survivors) == 3
    by_operation: dict[int, set[str]] = {}
    for seen in survivors:
        for operation, digest, _ in seen:
            if digest is not None:
                by_operation.setdefault(operation, set()).add(digest)
        # Three of four, and what the dead rank owned is lost.
        assert seen[-1][2] == pytest.approx(9 / 16)
    assert all(len(digests) == 1 for digests in by_operation.values())


def late_for_memory(member: Member) -> list[float]:
    """Rank 1 comes later than anybody waits; what follows goes over the network, on the other host too."""
    _, reducer = on_hosts(member, 2, exact_deadline_ms=1_000.0, deadline_floor_ms=400.0)
    warm_up(reducer, 20_000)
    ratios = []
    begun = time.monotonic()
    for round_ in range(12):
        if member.rank == 1 and round_ == 2:
            time.sleep(1.5)
        own = torch.full((20_000,), float(round_ + 1))
        outcome = reducer.finish(reducer.start(memory_of(own)))
        assert set(own.tolist()) <= {0.0, float(round_ + 1)}
        assert outcome.elapsed_ms < 1_000 + 1_000
        ratios.append(outcome.delivered_ratio)
        if round_ == 4:
            member.barrier()
    assert time.monotonic() - begun < 30
    assert any(line.endswith("shared memory has failed") for line in reducer.explain())
    member.barrier()
    return ratios


def test_a_rank_that_is_too_late_for_its_host_ends_the_meetings_of_all(run_ranks) -> None:
    for ratios in run_ranks(late_for_memory, 4):
        assert ratios[:2] == [1.0, 1.0]
        assert ratios[2] == 0.0
        assert ratios[-2:] == [1.0, 1.0]


def other_place_in_the_order(member: Member) -> list[float]:
    """Rank 0 was away and goes on further ahead than rank 1, on its host: their gradients must not meet."""
    _, reducer = on_hosts(member, 2, deadline_floor_ms=300.0)
    warm_up(reducer, 20_000)
    if member.rank == 0:
        reducer.resume(reducer.position.next_operation + 1, 0)
    values = []
    for round_ in range(8 if member.rank == 0 else 9):
        own = torch.full((20_000,), float(round_ + (member.rank == 0)))
        outcome = reducer.finish(reducer.start(memory_of(own)))
        assert set(own.tolist()) <= {0.0, float(round_ + (member.rank == 0))}
        values.append(outcome.delivered_ratio)
    member.barrier()
    return values


def test_ranks_of_a_host_that_are_not_at_the_same_operation_do_not_sum(run_ranks) -> None:
    for ratios in run_ranks(other_place_in_the_order, 4):
        assert ratios[-1] > 0.9


def meets(member: Member, per_host: int, settings: dict[str, Any]) -> bool:
    link, _ = on_hosts(member, per_host, **settings)
    return link.host_meetings is not None


@pytest.mark.parametrize(
    ("num_ranks", "settings"),
    [(3, {}), (4, {"shared_memory": False}), (4, {"hierarchy": 2}), (4, {"deadline_ms": 500.0})],
)
def test_where_it_does_not_fit_all_go_over_the_network(run_ranks, num_ranks: int, settings: dict[str, Any]) -> None:
    assert run_ranks(meets, num_ranks, 2, settings) == [False] * num_ranks
