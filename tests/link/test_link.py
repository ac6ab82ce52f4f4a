"""A joined link: notes, goodbyes, deaths, strangers, and a thread that sleeps when there is nothing to do."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from typing import Any

import pytest
import torch
from rank_processes import HOST, Member, io_threads, left_behind, udp_sockets

from holdfast.bridge.tensors import memory_of
from holdfast.config import Config
from holdfast.errors import DeadlineExceeded, HandleClosed, KeyMismatch, PeerDead
from holdfast.link.link import Agreement, Link, Rank, open_engine
from holdfast.reduce.transpose import TransposeAllReduce

CHANNEL = 9


# ---------------------------------------------------------------------------------------------------- notes


def exchange_notes(member: Member) -> list[tuple[int, int, bytes]]:
    link = member.join()
    sizes = [0, 1, 1_000, 20_000, 3_000_000]
    tickets = [
        (peer, link.send_note(peer, CHANNEL + n, bytes([member.rank]) * size, 20.0))
        for peer in range(member.num_ranks)
        if peer != member.rank
        for n, size in enumerate(sizes)
    ]
    received = []
    for n in range(len(sizes)):
        for _ in range(member.num_ranks - 1):
            note = link.receive_note(CHANNEL + n, 20.0)
            assert note is not None
            received.append((n, note[0], note[1]))
    for peer, ticket in tickets:
        link.finish_note(peer, ticket, 20.0)
    member.barrier()
    return [(n, sender, content[:1] + bytes([len(set(content))])) for n, sender, content in sorted(received)] + [
        (n, sender, len(content).to_bytes(4, "big")) for n, sender, content in sorted(received)
    ]


def test_notes_of_any_size_arrive_whole_on_their_channel(run_ranks) -> None:
    sizes = [0, 1, 1_000, 20_000, 3_000_000]
    for rank, received in enumerate(run_ranks(exchange_notes, 3)):
        others = [peer for peer in range(3) if peer != rank]
        half = len(received) // 2
        assert [entry[:2] for entry in received[:half]] == [(n, peer) for n in range(5) for peer in others]
        for n, sender, content in received[:half]:
            assert content == (bytes([sender, 1]) if sizes[n] else b"\0")
        for n, _, length in received[half:]:
            assert int.from_bytes(length, "big") == sizes[n]


def no_note(member: Member) -> float:
    link = member.join()
    started = time.monotonic()
    assert link.receive_note(CHANNEL, 0.2) is None
    elapsed_s = time.monotonic() - started
    member.barrier()
    return elapsed_s


def test_waiting_for_a_note_has_a_limit(run_ranks) -> None:
    assert all(0.2 <= elapsed_s < 2.0 for elapsed_s in run_ranks(no_note, 2))


# ---------------------------------------------------------------------------------------------------- endings


def closed(member: Member) -> None:
    link = member.join()
    assert io_threads() == ["holdfast-io"]
    assert len(udp_sockets()) == 1
    member.barrier()
    link.close()
    link.close()
    assert link.closed
    assert left_behind() == []
    for use in (
        link.snapshot,
        link.require_open,
        lambda: link.receive_note(1, 0.1),
        lambda: link.send_note(0, 1, b"", 1.0),
    ):
        with pytest.raises(HandleClosed, match="attach again"):
            use()
    with pytest.raises(HandleClosed):
        TransposeAllReduce(link).start(memory_of(torch.ones(3)))


def test_a_closed_link_says_so_and_leaves_nothing(run_ranks) -> None:
    run_ranks(closed, 2)


def forgotten_link(member: Member) -> None:
    link = member.join()
    member.barrier()
    member._links.clear()
    del link
    assert left_behind() == []


def test_a_forgotten_link_closes_itself(run_ranks) -> None:
    run_ranks(forgotten_link, 2)


def watch_a_peer(member: Member, leaves: bool) -> tuple[str, float]:
    link = member.join(silence_limit_ms=1_500.0, heartbeat_ms=100.0)
    member.barrier()
    if member.rank == 1:
        if not leaves:
            member.say("ready")
            signal.pause()
        time.sleep(0.3)
        member.store.set("left at", str(time.monotonic()))
        link.close()
        return "", 0.0
    while link.snapshot().peers[0].state.name == "alive":
        time.sleep(0.005)
    noticed_at = time.monotonic()
    left_at = float(member.store.get("left at"))
    return link.snapshot().peers[0].state.name, noticed_at - left_at


def test_a_goodbye_is_recognised_long_before_the_silence_limit(run_ranks) -> None:
    (state, after_s), _ = run_ranks(watch_a_peer, 2, True)
    assert state == "left"
    assert after_s < 0.8


def test_a_killed_peer_is_dead_after_the_silence_limit(start_ranks) -> None:
    with start_ranks(watch_a_peer, 2, False) as ranks:
        ranks.hear("ready")
        ranks.store.set("left at", str(time.monotonic()))
        ranks.kill(1)
        (state, after_s), _ = ranks.results(dead={1})
    assert state == "dead"
    assert 1.0 < after_s < 4.0


def note_beside_a_death(member: Member) -> tuple[str, tuple[int, ...], float]:
    link = member.join(silence_limit_ms=500.0, heartbeat_ms=100.0)
    member.barrier()
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    ticket = link.send_note(1, CHANNEL, b"x" * 10_000_000, 20.0)
    with pytest.raises((PeerDead, DeadlineExceeded)) as caught:
        link.finish_note(1, ticket, 20.0)
    assert left_behind() != []  # the link itself goes on
    return type(caught.value).__name__, caught.value.peers, time.monotonic() - started


def test_a_note_to_a_killed_peer_is_peer_dead_before_its_deadline(start_ranks) -> None:
    with start_ranks(note_beside_a_death, 2) as ranks:
        (name, peers, elapsed_s), _ = ranks.results(dead={1})
    assert (name, peers) == ("PeerDead", (1,))
    assert elapsed_s < 10.0


def interrupted(member: Member, waiting_for: str) -> float:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    link = member.join()
    member.barrier()
    if member.rank == 1:
        member.hear("interrupted")
        return 0.0
    member.say("waiting")
    try:
        if waiting_for == "note":
            link.receive_note(CHANNEL, 60.0)
        else:
            reducer = TransposeAllReduce(link)
            tensor = torch.ones(100)
            reducer.finish(reducer.start(memory_of(tensor), exact=True))
    except KeyboardInterrupt:
        interrupted_at = time.monotonic()
    member.say("interrupted")
    link.close()
    assert left_behind() == []
    return interrupted_at


@pytest.mark.parametrize("waiting_for", ["note", "operation"])
def test_control_c_interrupts_a_wait(start_ranks, waiting_for: str) -> None:
    with start_ranks(interrupted, 2, waiting_for) as ranks:
        ranks.hear("waiting")
        time.sleep(0.2)
        sent_at = time.monotonic()
        ranks.signal(0, signal.SIGINT)
        interrupted_at, _ = ranks.results()
    assert 0.0 <= interrupted_at - sent_at < 2.0


def interrupted_join(member: Member) -> str:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    member.say("joining")
    with pytest.raises(KeyboardInterrupt):
        member.join(join_timeout_s=60.0)
    assert left_behind() == []
    return "interrupted"


def absent(_member: Member) -> str:
    return "absent"


def join_or_not(member: Member) -> str:
    return interrupted_join(member) if member.rank == 0 else absent(member)


def test_control_c_interrupts_joining(start_ranks) -> None:
    with start_ranks(join_or_not, 2) as ranks:
        ranks.store.wait(["said/joining"])
        time.sleep(0.3)
        ranks.signal(0, signal.SIGINT)
        assert ranks.results() == ["interrupted", "absent"]


# ---------------------------------------------------------------------------------------------------- strangers


def link_with_key(member: Member, key: bytes) -> Link:
    """A link whose job key nobody compared: what a stranger who knows the addresses could open."""
    config = Config()
    engine = open_engine(config, address=HOST, port=0)
    member.store.set(f"port/{member.rank}", str(engine.port))
    ports = [int(member.store.get(f"port/{rank}")) for rank in range(member.num_ranks)]
    ranks = [Rank(HOST, port, bytes([rank]) * 16, "here") for rank, port in enumerate(ports)]
    link = Link(engine, Agreement(member.rank, ranks, job=1, epoch=0, job_key=key, datagram_bytes=1_472), config)
    member._links.append(link)
    return link


def other_key(member: Member) -> tuple[str, tuple[int, ...]]:
    link = link_with_key(member, bytes([member.rank]) * 32)
    with pytest.raises(KeyMismatch) as caught:
        link.wait_joined(0.5)
    member.barrier()
    return type(caught.value).__name__, caught.value.peers


def test_another_key_is_recognised_by_its_datagrams_too(run_ranks) -> None:
    assert run_ranks(other_key, 2) == [("KeyMismatch", (1,)), ("KeyMismatch", (0,))]


def flooded(member: Member) -> tuple[bool, int, int]:
    link = member.join(deadline_ms=20_000.0)
    reducer = TransposeAllReduce(link)
    member.barrier()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for number in range(3_000):
            noise = os.urandom(64 + number % 1_400)
            stranger.sendto(noise, (HOST, link.agreement.ranks[1 - member.rank].port))
            stranger.sendto(b"", (HOST, link.agreement.ranks[1 - member.rank].port))
    tensor = torch.full((10_007,), float(member.rank))
    outcome = reducer.finish(reducer.start(memory_of(tensor)))
    right = bool((tensor == 0.5).all())
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    member.barrier()
    assert outcome.complete
    return right, sum(link.snapshot().drops.values()), grown_kib


def test_a_flood_of_random_datagrams_changes_nothing(run_ranks) -> None:
    for right, drops, grown_kib in run_ranks(flooded, 2):
        assert right
        assert drops > 500  # the kernel may drop some itself
        assert grown_kib < 20_000


# ---------------------------------------------------------------------------------------------------- idle


def idle(member: Member, seconds: float) -> tuple[float, int]:
    link = member.join()
    member.barrier()
    time.sleep(0.2)
    wakeups = link.snapshot().wakeups
    before = time.process_time()
    time.sleep(seconds)
    used_s = time.process_time() - before
    wakeups = link.snapshot().wakeups - wakeups
    member.barrier()
    return used_s, wakeups


def test_an_idle_process_uses_no_measurable_cpu(run_ranks) -> None:
    for used_s, wakeups in run_ranks(idle, 2, 3.0):
        assert used_s < 0.03  # 1 % of 3 s
        assert wakeups < 200  # heartbeats four times a second, each way, with an answer


def silence_between(member: Member) -> dict[str, Any]:
    """A process that computes without ever calling Holdfast, holding the GIL, is not dead to its peers."""
    link = member.join(silence_limit_ms=600.0, heartbeat_ms=100.0)
    member.barrier()
    if member.rank == 1:
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            sum(range(10_000))
    else:
        time.sleep(1.3)
    states = {str(peer.rank): peer.state.name for peer in link.snapshot().peers}
    member.barrier()
    return states


def test_a_busy_interpreter_is_not_silent(run_ranks) -> None:
    assert run_ranks(silence_between, 2) == [{"1": "alive"}, {"0": "alive"}]
