"""The all-reduce of ranks on one host, in real processes: exact, alike everywhere, and never longer than its deadline."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import Member, left_behind

from holdfast import _native
from holdfast.bridge.tensors import memory_of
from holdfast.errors import BucketMismatch, DeadlineExceeded, HandleClosed, PeerDead
from holdfast.link.link import Link
from holdfast.reduce.host_meeting import HostMeeting
from holdfast.reduce.reducer import reducer_for
from holdfast.reduce.shared_memory import SharedMemoryAllReduce

# One piece, several, and more than the ring holds at once; none of them divides by the number of ranks.
COUNTS = (1, 2, 3, 1_001, 300_007)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Scheduling on a busy machine; a hang would be far beyond it.
SLACK_S = 10.0


def gradient(rank: int, count: int, dtype: torch.dtype, round_: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000 * round_ + rank)
    return torch.randn(count, generator=generator).to(dtype)


def met(member: Member, **settings: Any) -> tuple[Link, SharedMemoryAllReduce]:
    link = member.join(shared_memory=True, **settings)
    reducer = reducer_for(link)
    assert isinstance(reducer, SharedMemoryAllReduce)
    return link, reducer


def averages(member: Member) -> list[tuple[bytes, float]]:
    """Each average, and how far it is from one in float64, in units of the last place."""
    _, reducer = met(member)
    found = []
    for dtype in DTYPES:
        for count in COUNTS:
            own = gradient(member.rank, count, dtype)
            outcome = reducer.finish(reducer.start(memory_of(own), bucket=3))
            assert outcome.complete
            assert outcome.exact
            assert outcome.bucket == 3
            assert outcome.shard_elements + sum(peer.shard_elements for peer in outcome.peers) == count
            everybody = [gradient(rank, count, dtype).double() for rank in range(member.num_ranks)]
            truth = torch.stack(everybody).mean(0)
            scale = torch.stack(everybody).abs().sum(0) / member.num_ranks
            error = ((own.double() - truth).abs() / scale.clamp_min(1e-300)).max().item()
            digest = bytes(own.view(torch.uint8).numpy().tobytes()[:4_096])
            found.append((digest, error / torch.finfo(dtype).eps))
    return found


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_averages_are_true_and_bit_for_bit_alike(run_ranks, num_ranks: int) -> None:
    first, *others = run_ranks(averages, num_ranks)
    assert len(first) == len(DTYPES) * len(COUNTS)
    assert max(error for _, error in first) <= 2  # float32 sums: rounded once per addend, at most
    for other in others:
        assert [digest for digest, _ in other] == [digest for digest, _ in first]


def several_in_flight(member: Member) -> list[int]:
    _, reducer = met(member)
    started = []
    for number in range(12):
        own = torch.full((50_000 + number,), float(member.rank + number))
        started.append((own, reducer.start(memory_of(own), layout=number)))
    operations = []
    for number, (own, pending) in reversed(list(enumerate(started))):
        operations.append(reducer.finish(pending).operation)
        assert (own == number + (member.num_ranks - 1) / 2).all()
    summed = torch.full((7,), float(member.rank))
    reducer.finish(reducer.start(memory_of(summed), average=False))
    assert (summed == sum(range(member.num_ranks))).all()
    return operations


def test_operations_may_be_in_flight_and_finished_in_any_order(run_ranks) -> None:
    for operations in run_ranks(several_in_flight, 3):
        assert operations == list(range(11, -1, -1))


def halves(member: Member) -> bool:
    link, _ = met(member)
    assert link.meeting is not None
    meeting = HostMeeting(link, link.meeting, range(member.num_ranks))
    own = gradient(member.rank, 100_003, torch.float32)
    truth = torch.stack([gradient(rank, 100_003, torch.float32) for rank in range(member.num_ranks)]).double().sum(0)
    begin, end = meeting.shard(own.numel(), member.rank)
    meeting.finish(meeting.start_sum_of_shards(memory_of(own), deadline_ms=20_000))
    assert torch.allclose(own[begin:end].double(), truth[begin:end], atol=1e-5)
    own[begin:end] *= 2  # what the other hosts would add
    meeting.finish(meeting.start_exchange_of_shards(memory_of(own), deadline_ms=20_000))
    return bool(torch.allclose(own.double(), 2 * truth, atol=1e-5))


def test_the_halves_may_be_called_apart(run_ranks) -> None:
    assert run_ranks(halves, 3) == [True] * 3


def late(member: Member) -> dict[str, Any]:
    _, reducer = met(member)
    own = torch.full((1_000,), float(member.rank))
    reducer.finish(reducer.start(memory_of(own)))
    if member.rank == 1:
        time.sleep(0.4)
    own = torch.full((1_000,), float(member.rank))
    outcome = reducer.finish(reducer.start(memory_of(own)))
    assert (own == (member.num_ranks - 1) / 2).all()
    return {peer.rank: peer.contribution_arrived_ms[0] for peer in outcome.peers} | {"own": outcome.called_ms}


def test_a_late_rank_is_waited_for_and_every_outcome_tells_who_it_was(run_ranks) -> None:
    first, second, third = run_ranks(late, 3)
    for of_rank in (first, third):
        assert of_rank[1] > 300 > of_rank["own"]
    assert second["own"] > 300 > max(second[0], second[2])


def goes_on_until_killed(member: Member) -> tuple[str, tuple[int, ...], float, list[str]]:
    link, reducer = met(member, silence_limit_ms=600.0)
    own = torch.zeros(2_000_000)
    rounds = 0
    while True:
        try:
            own.fill_(float(member.rank))
            begun = time.monotonic()
            reducer.finish(reducer.start(memory_of(own)))
            assert (own == 1.0).all()
            rounds += 1
            if rounds == 3:
                member.say(f"running {member.rank}")
        except PeerDead as error:
            elapsed = time.monotonic() - begun
            # Nothing is left of the meeting but the network, which knows who is dead too.
            link.close()
            return type(error).__name__, error.peers, elapsed, left_behind()


def test_a_killed_rank_is_named_and_nothing_is_left(start_ranks) -> None:
    before = set(os.listdir("/dev/shm"))
    with start_ranks(goes_on_until_killed, 3) as ranks:
        for rank in range(3):
            ranks.hear(f"running {rank}")
        ranks.kill(2)
        *survivors, _ = ranks.results(dead={2})
    for name, peers, elapsed, left in survivors:
        assert (name, peers, left) == ("PeerDead", (2,), [])
        assert elapsed < 0.6 + SLACK_S
    assert set(os.listdir("/dev/shm")) <= before


def goes_on_though_stopped(member: Member) -> tuple[int, tuple[int, ...], list[float]]:
    """Which operation failed, who is to blame, and the averages over the network after it."""
    _, reducer = met(member, exact_deadline_ms=700.0, silence_limit_ms=60_000.0, heartbeat_ms=100.0)
    failed, peers, means = -1, (), list[float]()
    number = 0
    while len(means) < 6:
        own = torch.full((1_000_000,), float(member.rank + number))
        try:
            outcome = reducer.finish(reducer.start(memory_of(own)))
        except DeadlineExceeded as late:
            assert failed < 0, "one operation fails, on every rank the same"
            failed, peers = number, late.peers
            member.hear("it goes on")
        else:
            assert outcome.complete
            assert ((own - (1.0 + number)).abs() < 1e-4).all(), "never a wrong value"
            if failed >= 0:
                means.append(own[0].item())
        number += 1
        if number == 5:
            member.say(f"running {member.rank}")
    return failed, peers, means


def test_a_stopped_rank_is_named_at_the_deadline_and_never_writes_into_a_later_average(start_ranks) -> None:
    with start_ranks(goes_on_though_stopped, 3) as ranks:
        for rank in range(3):
            ranks.hear(f"running {rank}")
        with ranks.stopped(2):
            time.sleep(1.2)
        ranks.say("it goes on")
        results = ranks.results()
    assert len({failed for failed, _, _ in results}) == 1
    assert [peers for _, peers, _ in results] == [(2,)] * 3
    assert len({tuple(means) for _, _, means in results}) == 1


def in_flight_when_it_fails(member: Member) -> list[str]:
    """What was started behind the operation that fails is done over the network, in the same order on all ranks."""
    _, reducer = met(member, exact_deadline_ms=400.0, silence_limit_ms=60_000.0, heartbeat_ms=100.0)
    if member.rank == 1:
        time.sleep(1.0)
    tensors = [torch.full((5_000 + number,), float(member.rank)) for number in range(4)]
    pending = [reducer.start(memory_of(own), layout=number) for number, own in enumerate(tensors)]
    with pytest.raises(DeadlineExceeded) as caught:
        reducer.finish(pending[0])
    assert caught.value.peers == (1,)
    said = []
    reducer.abandon(pending[1])
    for own, each in zip(tensors[2:], pending[2:], strict=True):
        try:
            outcome = reducer.finish(each)
        except DeadlineExceeded:
            said.append("too late")  # the others called it long ago
            continue
        said.append("complete")
        assert outcome.complete
        assert (own == (member.num_ranks - 1) / 2).all()
    member.barrier()
    own = torch.full((9,), float(member.rank))
    assert reducer.finish(reducer.start(memory_of(own))).complete
    assert (own == (member.num_ranks - 1) / 2).all()
    return said


def test_what_was_started_behind_a_failure_goes_over_the_network(run_ranks) -> None:
    assert len(run_ranks(in_flight_when_it_fails, 3)) == 3


def calls_something_else(member: Member) -> tuple[int, ...]:
    _, reducer = met(member)
    own = torch.zeros(100 + (member.rank == 1))
    with pytest.raises(BucketMismatch) as caught:
        reducer.finish(reducer.start(memory_of(own), bucket=0))
    member.barrier()
    return caught.value.peers


def test_a_rank_that_calls_something_else_is_a_mismatch(run_ranks) -> None:
    for peers in run_ranks(calls_something_else, 3):
        assert peers in ((1,), (0, 2))


def leaves(member: Member) -> str:
    link, reducer = met(member, exact_deadline_ms=20_000.0)
    own = torch.zeros(1_000)
    pending = reducer.start(memory_of(own))
    if member.rank == 0:
        time.sleep(0.3)
        link.close()
        with pytest.raises(HandleClosed):
            reducer.finish(pending)
        with pytest.raises(HandleClosed):
            reducer.start(memory_of(own))
        return ""
    if member.rank == 1:
        reducer.finish(pending)
        pending = reducer.start(memory_of(own))
    with pytest.raises(PeerDead) as caught:
        reducer.finish(pending)
    assert caught.value.peers == (0,)
    return "told"


def test_a_rank_that_closes_its_link_is_named_to_those_who_wait(run_ranks) -> None:
    def nothing_in_files() -> bool:
        return not list(Path("/dev/shm").glob("*holdfast*"))

    assert run_ranks(leaves, 2) == ["", "told"]
    assert nothing_in_files()


def test_a_meeting_does_not_outlive_its_owner() -> None:
    """The memory is gone with the last descriptor and the last mapping."""
    descriptor = _native.create_meeting_memory(2)
    inode = os.fstat(descriptor).st_ino
    meeting = _native.HostMeeting(descriptor=descriptor, member=0, num_members=2)
    os.close(descriptor)
    meeting.close()
    assert meeting.closed
    assert f" {inode} " not in Path("/proc/self/maps").read_text()
    with pytest.raises(RuntimeError, match="left the meeting"):
        meeting.meet(
            kind=_native.MeetingKind.all_reduce,
            data=0,
            count=0,
            format=_native.Format.f32,
            layout=0,
            scale=1.0,
            deadline_s=1.0,
        )


def test_odd_arguments_are_refused() -> None:
    descriptor = _native.create_meeting_memory(2)
    values = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="not a member"):
        _native.HostMeeting(descriptor=descriptor, member=2, num_members=2)
    with pytest.raises(ValueError, match="agreed on"):
        _native.HostMeeting(descriptor=descriptor, member=0, num_members=3)
    meeting = _native.HostMeeting(descriptor=descriptor, member=0, num_members=2)
    os.close(descriptor)
    whole = {"data": values.ctypes.data, "count": 4, "layout": 0, "scale": 1.0, "kind": _native.MeetingKind.all_reduce}
    with pytest.raises(ValueError, match="floating-point"):
        meeting.meet(format=_native.Format.bytes, deadline_s=1.0, **whole)
    with pytest.raises(ValueError, match="finite"):
        meeting.meet(format=_native.Format.f32, deadline_s=float("inf"), **whole)
    meeting.close()
