"""Replicas are made equal to rank 0's, bit for bit, and whoever does not take part is named."""

from __future__ import annotations

import hashlib
import signal
import time

import pytest
import torch
from rank_processes import Member
from torch import nn

from holdfast.bridge.equality import Equalised, equalise, model_state
from holdfast.errors import BucketMismatch, DeadlineExceeded, OperationError, PeerDead

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def tensors_of(rank: int, differing: list[int]) -> list[torch.Tensor]:
    """Some tensors, of which those listed differ from rank to rank."""
    tensors = []
    for index, dtype in enumerate(DTYPES):
        seed = 100 * rank + index if index in differing else index
        values = torch.randint(
            0, 2 if dtype == torch.bool else 1000, (5, 3), generator=torch.Generator().manual_seed(seed)
        )
        tensors.append(values.to(dtype))
    tensors.append(torch.zeros(0))
    tensors.append(torch.tensor(float(rank) if 7 in differing else 1.5))
    transposed = torch.arange(12, dtype=torch.float32).reshape(3, 4).t()  # not contiguous
    tensors.append(transposed + rank if 8 in differing else transposed)
    return tensors


def digest_of(tensors: list[torch.Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def make_equal(member: Member, differing: list[int]) -> tuple[str, Equalised]:
    link = member.join()
    tensors = tensors_of(member.rank, differing)
    equalised = equalise(link, tensors, 20.0)
    member.barrier()
    return digest_of(tensors), equalised


@pytest.mark.parametrize("differing", [[], [0], [1, 2, 3, 4, 5], [7], [0, 7, 8]], ids=str)
def test_what_differs_is_fetched_from_rank_0_and_nothing_else(run_ranks, differing: list[int]) -> None:
    results = run_ranks(make_equal, 3, differing)
    expected = digest_of(tensors_of(0, differing))
    for rank, (digest, equalised) in enumerate(results):
        assert digest == expected
        assert equalised.tensors_compared == 9
        if rank == 0:
            assert equalised.tensors_fetched == 0
        else:
            sizes = [tensor.numel() * tensor.element_size() for tensor in tensors_of(0, [])]
            assert equalised.tensors_fetched <= len(differing)  # bools may be equal by chance
            if 5 not in differing:
                assert equalised.tensors_fetched == len(differing)
                assert equalised.bytes_fetched == sum(sizes[index] for index in differing)


def make_large_equal(member: Member) -> tuple[str, int]:
    link = member.join()
    tensor = torch.full((2_500_003,), float(member.rank))  # 10 MB: three pieces
    equalised = equalise(link, [tensor], 30.0)
    member.barrier()
    return digest_of([tensor]), equalised.bytes_fetched


def test_a_large_tensor_travels_in_pieces(run_ranks) -> None:
    results = run_ranks(make_large_equal, 3)
    assert {digest for digest, _ in results} == {digest_of([torch.zeros(2_500_003)])}
    assert [num_bytes for _, num_bytes in results] == [0, 10_000_012, 10_000_012]


def again_and_again(member: Member) -> list[str]:
    link = member.join()
    digests = []
    for round_number in range(10):
        tensor = torch.tensor([float(member.rank), float(round_number)])
        equalise(link, [tensor], 20.0)
        digests.append(digest_of([tensor]))
    member.barrier()
    return digests


def test_rounds_do_not_mix(run_ranks) -> None:
    results = run_ranks(again_and_again, 4)
    assert results == [[digest_of([torch.tensor([0.0, float(n)])]) for n in range(10)]] * 4


def other_number_of_tensors(member: Member) -> str:
    link = member.join()
    tensors = [torch.ones(3)] * (2 if member.rank == 1 else 1)
    name = ""
    try:
        equalise(link, tensors, 1.0)
    except (BucketMismatch, DeadlineExceeded) as error:
        name = type(error).__name__
    member.barrier()
    return name


def test_another_number_of_tensors_is_a_mismatch(run_ranks) -> None:
    first, second = run_ranks(other_number_of_tensors, 2)
    assert second == "BucketMismatch"
    assert first in ("BucketMismatch", "DeadlineExceeded")


def one_does_not_call(member: Member, absent: int) -> tuple[str, tuple[int, ...], float]:
    link = member.join()
    answer: tuple[str, tuple[int, ...], float] = ("", (), 0.0)
    if member.rank != absent:
        started = time.monotonic()
        try:
            equalise(link, [torch.ones(3)], 0.5)
        except DeadlineExceeded as error:
            answer = (type(error).__name__, error.peers, time.monotonic() - started)
    member.barrier()
    return answer


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_does_not_take_part_is_named_at_the_deadline(run_ranks, absent: int) -> None:
    results = run_ranks(one_does_not_call, 3, absent)
    waiting = [1, 2] if absent == 0 else [0]  # the others need only rank 0
    for rank in waiting:
        name, peers, elapsed_s = results[rank]
        assert (name, peers) == ("DeadlineExceeded", (absent,))
        assert 0.5 <= elapsed_s < 2.5


def beside_a_death(member: Member, victim: int) -> tuple[str, tuple[int, ...], str]:
    link = member.join(silence_limit_ms=600.0, heartbeat_ms=100.0)
    member.say(f"ready/{member.rank}")
    if member.rank == victim:
        signal.pause()
    member.hear("killed")
    tensors = [torch.full((3,), float(member.rank))]
    name, peers = "", ()
    try:
        equalise(link, tensors, 30.0)
    except PeerDead as error:
        name, peers = "PeerDead", error.peers
    member.say(f"done/{member.rank}")
    for rank in range(member.num_ranks):
        if rank != victim:
            member.hear(f"done/{rank}")
    return name, peers, digest_of(tensors)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_dead_rank_is_named_long_before_the_deadline_and_the_living_are_served(start_ranks, victim: int) -> None:
    with start_ranks(beside_a_death, 3, victim, timeout_s=20) as ranks:
        for rank in range(3):
            ranks.hear(f"ready/{rank}")
        ranks.kill(victim)
        ranks.say("killed")
        results = ranks.results(dead={victim})
    if victim == 0:
        assert [result[:2] for result in results[1:]] == [("PeerDead", (0,))] * 2
    else:
        assert results[0][:2] == ("PeerDead", (2,))
        assert results[1] == ("", (), digest_of([torch.zeros(3)]))


def one_is_in_doubt(member: Member, sure: list[bool]) -> tuple[int, int]:
    link = member.join()
    tensors = [torch.full((5_000,), float(member.rank)), torch.full((7,), 3.0)]
    fetched = equalise(link, tensors, 20.0, sure=sure[member.rank])
    member.barrier()
    assert bool((tensors[0] == tensors[0][0]).all())
    return int(tensors[0][0]), fetched.tensors_fetched


@pytest.mark.parametrize(
    ("sure", "kept"),
    [
        ([True, True, True], 0),
        ([True, False, True], 0),
        ([False, True, True], 1),
        ([False, False, True], 2),
        ([False, False, False], 0),  # nobody knows better
    ],
)
def test_a_rank_0_in_doubt_takes_the_state_of_the_lowest_that_is_sure(run_ranks, sure: list[bool], kept: int) -> None:
    """It was away while the others went on: its state must not be theirs."""
    results = run_ranks(one_is_in_doubt, 3, sure)
    assert [value for value, _ in results] == [kept] * 3
    assert [fetched for _, fetched in results] == [int(rank != kept) for rank in range(3)]


def test_alone_there_is_nothing_to_compare_with() -> None:
    class Alone:
        num_ranks = 1
        rank = 0

    assert equalise(Alone(), [torch.ones(2)], 1.0) == Equalised(1, 0, 0)  # type: ignore[arg-type]


def test_the_state_of_a_model_is_parameters_buffers_and_optimizer() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    assert len(model_state(model, [])) == 4 + 3
    assert len(model_state(model, [optimizer])) == 4 + 3  # no step yet, no state
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    tensors = model_state(model, [optimizer])
    assert len(tensors) == 4 + 3 + 4 * 3  # step, exp_avg, exp_avg_sq
    assert not any(tensor.requires_grad for tensor in tensors)
    assert tensors[0].data_ptr() == model[0].weight.data_ptr()


def fail_then_succeed(member: Member) -> tuple[str, int]:
    """Round 1 fails on rank 0, because rank 1 does not come; rank 0 trains on; then both take part."""
    link = member.join()
    tensors = [torch.zeros(6)]
    if member.rank == 0:
        with pytest.raises(DeadlineExceeded):
            equalise(link, tensors, 0.3)
        tensors[0] += 6
    member.barrier()
    fetched = equalise(link, tensors, 10.0).tensors_fetched
    member.barrier()
    return digest_of(tensors), fetched


def test_a_round_that_failed_is_not_taken_for_the_next_one(run_ranks) -> None:
    (reference, _), (fetched, tensors_fetched) = run_ranks(fail_then_succeed, 2)
    assert fetched == reference
    assert tensors_fetched == 1


def beside_an_impostor(member: Member) -> str:
    link = member.join()
    tensors = [torch.full((4,), float(member.rank == 1))]
    if member.rank == 2:
        for channel in (0x51, 0x53, 0x54):
            link.send_note(1, channel, b"\x00" * 64, 5.0)
    member.barrier()
    equalise(link, tensors, 10.0)
    member.barrier()
    return digest_of(tensors)


def test_only_rank_0_is_believed(run_ranks) -> None:
    assert len(set(run_ranks(beside_an_impostor, 3))) == 1


def asks_for_what_is_not_there(member: Member) -> str:
    link = member.join()
    name = ""
    if member.rank == 0:
        with pytest.raises(OperationError, match="do not exist") as caught:
            equalise(link, [torch.zeros(3)], 10.0)
        name = str(caught.value.peers)
    else:
        _, announcement = link.receive_note(0x51, 10.0) or (0, b"")
        link.send_note(0, 0x52, announcement[:8] + b"[7]", 5.0)
    member.barrier()
    return name


def test_a_request_for_tensors_that_do_not_exist_is_a_named_error(run_ranks) -> None:
    assert run_ranks(asks_for_what_is_not_there, 2)[0] == "(1,)"
