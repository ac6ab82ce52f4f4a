"""When ranks meet in shared memory and when they do not; who is handed the memory; what the handle makes of it."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import torch
from rank_processes import Member
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast import _native
from holdfast.bridge import meeting_place
from holdfast.errors import JoinError
from holdfast.link import interface
from holdfast.reduce.shared_memory import SharedMemoryAllReduce
from holdfast.reduce.transpose import TransposeAllReduce


def meets(member: Member, settings: dict[str, Any]) -> bool:
    descriptors = len(os.listdir("/proc/self/fd"))
    link = member.join(**settings)
    met = link.meeting is not None
    link.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    return met


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"shared_memory": True}, True),
        ({"shared_memory": False}, False),
        ({"shared_memory": True, "deadline_ms": 50.0}, False),
    ],
)
def test_ranks_of_one_host_meet_unless_told_otherwise(run_ranks, settings: dict[str, Any], expected: bool) -> None:
    assert run_ranks(meets, 3, settings) == [expected] * 3


def on_a_host_of_its_own(member: Member) -> bool:
    interface.host_identity = lambda: f"host-{member.rank}"  # this process ends with the test
    interface.is_loopback = lambda _address: False
    return member.join(shared_memory=True, interface="lo").meeting is None


def test_ranks_of_several_hosts_do_not(run_ranks) -> None:
    assert run_ranks(on_a_host_of_its_own, 2) == [True, True]


def differs(member: Member) -> tuple[int, ...]:
    with pytest.raises(JoinError, match="ranks differ in shared_memory") as caught:
        member.join(shared_memory=member.rank != 1)
    return caught.value.peers


def test_ranks_that_differ_in_the_setting_are_named(run_ranks) -> None:
    assert run_ranks(differs, 3) == [(1,), (0, 2), (1,)]


def one_cannot(member: Member, which: int) -> bool:
    if member.rank == which:

        def refuse(*_arguments: object) -> None:
            raise OSError("no memory for this")

        _native.create_meeting_memory = refuse
        meeting_place._require_own_user = refuse
    return member.join(shared_memory=True).meeting is None


@pytest.mark.parametrize("which", [0, 2])
def test_where_one_cannot_none_does(run_ranks, which: int) -> None:
    assert run_ranks(one_cannot, 3, which) == [True] * 3


def test_only_the_own_user_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        meeting_place._require_own_user(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
        with pytest.raises(PermissionError):
            meeting_place._require_own_user(ours)


def trains(member: Member, settings: dict[str, Any]) -> tuple[list[float], str, set[str], bool]:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.BatchNorm1d(60), torch.nn.Linear(60, 3)),
        bucket_cap_mb=0.005,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = holdfast.attach(model, optimizer, **settings)
    torch.manual_seed(member.rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 40)).square().mean().backward()
        optimizer.step()
    shared = isinstance(handle.reducer, SharedMemoryAllReduce)
    assert shared or isinstance(handle.reducer, TransposeAllReduce)
    text, ends = handle.explain(), {outcome.contributions_end for outcome in handle.outcomes()}
    assert handle.summary().delivered_ratio == 1.0
    assert handle.state_dict()["stage_ms"] is None
    handle.detach()
    values = [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]
    return values, text, ends, shared


def test_a_model_trains_in_shared_memory_as_it_does_over_the_network(run_ranks) -> None:
    # Rounding for the wire is for what travels; nothing does here.
    settings = {"shared_memory": True, "wire": "bf16", "hadamard": "on"}
    (first, text, ends, shared), (second, _, _, _) = run_ranks(trains, 2, settings, group=True)
    assert shared
    assert "shared memory" in text
    assert ends == {"complete"}
    assert first == second
    (network, _, _, over_memory), _ = run_ranks(trains, 2, {"shared_memory": False}, group=True)
    assert not over_memory
    assert first == pytest.approx(network, abs=1e-6)


def trains_on_two_hosts(member: Member, settings: dict[str, Any]) -> tuple[list[float], str]:
    interface.host_identity = lambda: f"host-{member.rank // 2}"
    interface.is_loopback = lambda _address: False
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.BatchNorm1d(60), torch.nn.Linear(60, 3)),
        bucket_cap_mb=0.005,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # No scheduler's whim is to lose anything.
    ample = {"interface": "lo", "warmup_operations": 2, "deadline_floor_ms": 8_000.0}
    handle = holdfast.attach(model, optimizer, **ample, **settings)
    torch.manual_seed(member.rank)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 40)).square().mean().backward()
        optimizer.step()
    assert handle.summary().delivered_ratio == 1.0
    assert any(not outcome.exact for outcome in handle.outcomes())
    text = handle.explain()
    values = [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]
    handle.detach()
    return values, text


def test_a_model_trains_on_several_hosts_whose_ranks_meet(run_ranks) -> None:
    results = run_ranks(trains_on_two_hosts, 4, {"shared_memory": True}, group=True)
    assert all("2 hosts of 2 ranks: summed in shared memory" in text for _, text in results)
    assert all(values == results[0][0] for values, _ in results)
    (network, text), *_ = run_ranks(trains_on_two_hosts, 4, {"shared_memory": False}, group=True)
    assert "shared memory" not in text
    assert results[0][0] == pytest.approx(network, abs=1e-5)


def test_what_goes_between_hosts_may_be_narrow_and_encoded(run_ranks) -> None:
    settings = {"shared_memory": True, "wire": "bf16", "hadamard": "on"}
    results = run_ranks(trains_on_two_hosts, 4, settings, group=True)
    assert all(values == results[0][0] for values, _ in results)
