"""How ranks find each other, and the name each obstacle has: within the join deadline, with nothing left open."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from rank_processes import HOST, Member, left_behind

from holdfast import _native
from holdfast.bridge import rendezvous
from holdfast.bridge.board import Board
from holdfast.config import Config
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    JoinError,
    LoopbackAcrossHosts,
    PeerNeverJoined,
    PeerUnreachable,
)
from holdfast.link import interface
from holdfast.link.link import open_engine

SLACK_S = 1.5


def refusal_of(member: Member, settings_by_rank: list[dict[str, Any]]) -> tuple[str, tuple[int, ...], str, float]:
    """What joining ends with on this rank: the error's name, its peers, its text, and after how long."""
    started = time.monotonic()
    with pytest.raises(HoldfastError) as caught:
        member.join(**settings_by_rank[member.rank])
    elapsed_s = time.monotonic() - started
    assert left_behind() == []
    assert caught.value.what_to_try
    member.barrier()
    return type(caught.value).__name__, caught.value.peers, str(caught.value), elapsed_s


# ---------------------------------------------------------------------------------------------------- what is agreed


def joined(member: Member, settings: dict[str, Any]) -> dict[str, Any]:
    link = member.join(**settings)
    member.barrier()
    agreement = link.agreement
    assert agreement.ranks[member.rank].port == link.engine.port
    return {
        "ranks": [dataclasses.asdict(entry) for entry in agreement.ranks],
        "datagram_bytes": agreement.datagram_bytes,
        "job_key": agreement.job_key,
    }


def test_all_ranks_agree(run_ranks) -> None:
    first, *others = run_ranks(joined, 4, {})
    assert all(other == first for other in others)
    assert len({entry["process"] for entry in first["ranks"]}) == 4
    assert len({entry["port"] for entry in first["ranks"]}) == 4
    assert {entry["host"] for entry in first["ranks"]} == {"127.0.0.1"}
    assert first["datagram_bytes"] == 16_320
    assert len(first["job_key"]) == 32


def test_every_run_draws_another_key_and_every_process_another_id(run_ranks) -> None:
    first, second = (run_ranks(joined, 2, {})[0] for _ in range(2))
    assert first["job_key"] != second["job_key"]
    processes = [entry["process"] for run in (first, second) for entry in run["ranks"]]
    assert len(set(processes)) == 4


def test_a_restarted_rank_gets_other_keys_even_with_a_key_file(run_ranks, tmp_path: Path) -> None:
    # Keys come from (job key, epoch, direction, process id, phase): another process id is another key.
    key = tmp_path / "job.key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    first, second = (run_ranks(joined, 2, {"key_file": str(key)})[0] for _ in range(2))
    assert first["job_key"] == second["job_key"] == bytes.fromhex("ab" * 32)
    processes = [entry["process"] for run in (first, second) for entry in run["ranks"]]
    assert len(set(processes)) == 4


def smallest_datagram(member: Member) -> int:
    link = member.join(datagram_bytes=1_472 if member.rank == 1 else None)
    member.barrier()
    return link.agreement.datagram_bytes


def test_the_smallest_datagram_of_all_ranks_is_used(run_ranks) -> None:
    assert run_ranks(smallest_datagram, 3) == [1_472] * 3


def fixed_ports(member: Member, base: int) -> int:
    link = member.join(port=base)
    member.barrier()
    return link.engine.port


def test_a_fixed_port_counts_up_on_a_host(run_ranks) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        base = min(probe.getsockname()[1] + 1, 60_000)
    assert run_ranks(fixed_ports, 3, base) == [base, base + 1, base + 2]


# ---------------------------------------------------------------------------------------------------- who is missing


def some_never_join(member: Member, absent: int) -> tuple[str, tuple[int, ...], float]:
    answer: tuple[str, tuple[int, ...], float] = ("", (), 0.0)
    if member.rank != absent:
        started = time.monotonic()
        with pytest.raises(PeerNeverJoined) as caught:
            member.join(join_timeout_s=0.6)
        answer = (str(caught.value), caught.value.peers, time.monotonic() - started)
        assert left_behind() == []
    member.barrier()
    return answer


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_rank_that_never_joins_is_named_by_all_others(run_ranks, absent: int) -> None:
    results = run_ranks(some_never_join, 3, absent)
    for rank, (text, peers, elapsed_s) in enumerate(results):
        if rank != absent:
            assert peers == (absent,), text
            assert 0.6 <= elapsed_s <= 0.6 + SLACK_S
            assert "join_timeout_s" in text


def one_dies_after_its_address(member: Member) -> str:
    """Rank 1 publishes an address at which nobody answers: a firewall, or a process that died in between."""
    if member.rank == 1:
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind((HOST, 0))
        entry = _native.Whereabouts(address=HOST, port=silent.getsockname()[1], process=bytes(16))
        board = Board(dist.PrefixStore("join/0", member.store), 1, 2, time.monotonic() + 10)
        key = rendezvous._job_key(board, Config())
        board.exchange("host", introduction_of(Config(), key))
        board.exchange("address", entry)
        board.exchange("datagram", _native.DatagramLimit(size=16_320))
        member.hear("over")
        silent.close()
        return ""
    started = time.monotonic()
    with pytest.raises(PeerUnreachable) as caught:
        member.join(join_timeout_s=1.0)
    assert time.monotonic() - started <= 1.0 + SLACK_S
    assert left_behind() == []
    member.say("over")
    assert caught.value.peers == (1,)
    return str(caught.value)


def introduction_of(config: Config, key: bytes) -> _native.Introduction:
    return _native.Introduction(
        protection=getattr(_native.Protection, config.protection),
        deterministic=config.deterministic,
        measures_deadline=config.deadline_ms is None,
        uneven_shards=config.uneven_shards,
        hadamard=getattr(_native.HadamardChoice, config.hadamard_in_force),
        hierarchy=0,
        warmup_operations=config.warmup_operations,
        key_fingerprint=_native.key_fingerprint(key),
        host_identity=interface.host_identity(),
    )


def test_a_blocked_port_is_a_peer_unreachable_with_its_address(run_ranks) -> None:
    text, _ = run_ranks(one_dies_after_its_address, 2)
    assert "rank 1 at 127.0.0.1:" in text
    assert "let UDP through" in text


def store_dies(member: Member) -> str:
    if member.rank == 0:
        server = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        member.store.set("port", str(server.port))
        member.hear("connected")
        os._exit(0)  # as a killed rank 0 would
    port = int(member.store.get("port"))
    store = dist.TCPStore(HOST, port, is_master=False)
    member.say("connected")
    with pytest.raises(JoinError, match="Store") as caught:
        rendezvous.join(store, rank=1, num_ranks=2, config=Config(join_timeout_s=10.0), step_bytes=0)
    assert left_behind() == []
    return caught.value.what_to_try


def test_a_store_that_dies_is_a_join_error(start_ranks) -> None:
    with start_ranks(store_dies, 2) as ranks:
        _, advice = ranks.results(dead={0})
    assert "rank 0" in advice


def store_stands_still(member: Member) -> tuple[int, ...]:
    if member.rank == 0:
        server = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        member.store.set("port", str(server.port))
        member.hear("over", timeout_s=60.0)
        return ()
    store = dist.TCPStore(HOST, int(member.store.get("port")), is_master=False)
    member.say("connected")
    member.hear("stopped")
    started = time.monotonic()
    with pytest.raises(JoinError, match="Store") as caught:
        rendezvous.join(store, rank=1, num_ranks=2, config=Config(join_timeout_s=1.0), step_bytes=0)
    assert time.monotonic() - started <= 1.0 + SLACK_S
    return caught.value.peers


def test_a_store_whose_host_is_stopped_does_not_hold_a_join_beyond_its_deadline(start_ranks) -> None:
    with start_ranks(store_stands_still, 2) as ranks:
        ranks.hear("connected")
        with ranks.stopped(0):
            ranks.say("stopped")
            time.sleep(1.0 + SLACK_S)  # the join must end while the Store is silent
        ranks.say("over")
        assert ranks.results()[1] == (0,)


# ---------------------------------------------------------------------------------------------------- what differs


def key_files(tmp_path: Path, *contents: str | None) -> list[dict[str, Any]]:
    settings: list[dict[str, Any]] = []
    for rank, content in enumerate(contents):
        if content is None:
            settings.append({})
            continue
        path = tmp_path / f"rank{rank}.key"
        path.write_text(content)
        path.chmod(0o600)
        settings.append({"key_file": str(path)})
    return settings


@pytest.mark.parametrize(
    "keys",
    [("ab" * 32, "ab" * 32, "cd" * 32), ("ab" * 32, None, None), (None, "ab" * 32, None)],
    ids=["other key", "rank 0 alone has a file", "rank 1 alone has a file"],
)
def test_a_key_that_differs_is_a_key_mismatch_on_every_rank(run_ranks, tmp_path: Path, keys: tuple[str | None]) -> None:
    for name, peers, text, elapsed_s in run_ranks(refusal_of, 3, key_files(tmp_path, *keys)):
        assert name == "KeyMismatch", text
        assert peers
        assert "key_file" in text
        assert elapsed_s < 5.0


@pytest.mark.parametrize(
    ("content", "text"),
    [("xyz", "hexadecimal"), ("abcd", "2 bytes, not 32"), ("", "0 bytes"), (None, "cannot be read")],
)
def test_a_key_file_that_holds_no_key_is_a_config_error(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "job.key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=rf"(?s){text}.*openssl rand -hex 32"):
        rendezvous.join(dist.HashStore(), rank=0, num_ranks=1, config=Config(key_file=str(path)), step_bytes=0)


def test_a_key_file_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "job.key"
    path.write_text("ab" * 32)
    path.chmod(0o644)
    rendezvous.join(dist.HashStore(), rank=0, num_ranks=1, config=Config(key_file=str(path)), step_bytes=0).close()
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize(
    "odd",
    [
        {"protection": "authenticated"},
        {"deterministic": True},
        {"deadline_ms": 50.0},
        {"warmup_operations": 6},
        {"hadamard": "on"},
        {"hadamard": "off"},
        {"hierarchy": "auto"},
        {"estimate": "zero_fill"},
        {"compare_replicas": False},
    ],
    ids=str,
)
def test_settings_that_must_agree_are_compared(run_ranks, odd: dict[str, Any]) -> None:
    results = run_ranks(refusal_of, 3, [{}, odd, {}])
    for rank, (name, peers, text, _) in enumerate(results):
        assert name == "JoinError"
        assert peers == ((0, 2) if rank == 1 else (1,))
        assert next(iter(odd)).removesuffix("_ms") in text


# ---------------------------------------------------------------------------------------------------- what is nonsense


def lies_in_the_store(member: Member, topic: str, lie: bytes) -> tuple[str, tuple[int, ...], str, float]:
    """Rank 1 follows the protocol up to one step, and there says something else."""
    if member.rank == 0:
        return refusal_of(member, [{"join_timeout_s": 5.0}])
    board = Board(dist.PrefixStore("join/0", member.store), 1, 2, time.monotonic() + 10)
    key = rendezvous._job_key(board, Config())
    honest = {
        "host": introduction_of(Config(), key),
        "address": _native.Whereabouts(address=HOST, port=9, process=bytes(16)),
        "datagram": _native.DatagramLimit(size=16_320),
    }
    for step, message in honest.items():
        board.publish(step, lie if step == topic else message.encode())
    member.barrier()
    return "", (), "", 0.0


@pytest.mark.parametrize(
    ("topic", "lie"),
    [
        ("host", b""),
        ("host", b"\x02" + b"\x01" * 40),
        ("host", b'{"identity": "json"}'),
        ("address", _native.DatagramLimit(size=1472).encode()),
        ("address", _native.Whereabouts(address="example.org", port=9, process=bytes(16)).encode()),
        ("address", _native.Whereabouts(address="255.255.255.255", port=9, process=bytes(16)).encode()),
        ("address", _native.Whereabouts(address="0.0.0.0", port=9, process=bytes(16)).encode()),
        ("address", _native.Whereabouts(address="ff02::1", port=9, process=bytes(16)).encode()),
        ("address", _native.Whereabouts(address="fe80::1%nosuchif", port=9, process=bytes(16)).encode()),
        ("address", bytes(10_000)),
        ("datagram", b"\x01\x03\x00\x00\x00\xff"),
        ("datagram", b"\x01\x03\xff\xff\xff\xff"),
    ],
    ids=[
        "nothing",
        "other version",
        "json",
        "wrong kind",
        "a name",
        "broadcast",
        "unspecified",
        "multicast",
        "a scope of another host",
        "long",
        "tiny datagram",
        "huge datagram",
    ],
)
def test_what_no_rank_would_announce_is_a_join_error(run_ranks, topic: str, lie: bytes) -> None:
    (name, peers, _, elapsed_s), _ = run_ranks(lies_in_the_store, 2, topic, lie)
    assert name == "JoinError"
    assert peers == (1,)
    assert elapsed_s < 4.0


def test_more_ranks_than_a_job_may_have_are_refused() -> None:
    too_many = _native.MAX_RANKS + 1
    with pytest.raises(ConfigError, match=str(_native.MAX_RANKS)):
        rendezvous.join(dist.HashStore(), rank=0, num_ranks=too_many, config=Config(), step_bytes=0)


# ---------------------------------------------------------------------------------------------------- hosts


def on_pretended_hosts(member: Member, settings: dict[str, Any]) -> tuple[str, tuple[int, ...], str, float]:
    """Every rank believes to be on a host of its own."""
    interface.host_identity = lambda: f"host-{member.rank}"  # this process ends with the test
    return refusal_of(member, [settings] * member.num_ranks)


def test_loopback_is_refused_between_hosts(run_ranks) -> None:
    for name, peers, text, elapsed_s in run_ranks(on_pretended_hosts, 2, {}):
        assert name == LoopbackAcrossHosts.__name__
        assert peers == (0, 1)
        assert "MASTER_ADDR" in text
        assert elapsed_s < 5.0


def test_insecure_is_refused_between_hosts(run_ranks) -> None:
    for name, _, text, _ in run_ranks(on_pretended_hosts, 2, {"protection": "insecure"}):
        assert name == ConfigError.__name__
        assert "loopback only" in text


def test_insecure_on_one_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(protection="insecure")
    rendezvous.join(dist.HashStore(), rank=0, num_ranks=1, config=config, step_bytes=0).close()
    assert "neither encrypted nor authenticated" in caplog.text


def test_the_chosen_address_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    rendezvous.join(dist.HashStore(), rank=0, num_ranks=1, config=Config(), step_bytes=0).close()
    assert "[rank 0] using 127.0.0.1 on lo (all ranks are on this host)" in caplog.text


# ---------------------------------------------------------------------------------------------------- ports


def taken_port(member: Member) -> tuple[str, str]:
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if member.rank == 0:
        holder.bind((HOST, 0))
        member.store.set("port", str(holder.getsockname()[1]))
    port = int(member.store.get("port"))
    with pytest.raises(JoinError) as caught:
        member.join(port=port, join_timeout_s=1.0)
    member.barrier()
    holder.close()
    return type(caught.value).__name__, str(caught.value)


def test_a_port_that_is_taken_is_named(run_ranks) -> None:
    (first, text), (second, other_text) = run_ranks(taken_port, 2)
    assert first == "JoinError"
    assert "Address already in use" in text
    assert "another `port`" in text
    assert second == "PeerNeverJoined", other_text  # the other rank hears of it by its deadline


@pytest.mark.parametrize(
    ("address", "port"), [("198.51.100.7", 0), ("not-an-address", 0)], ids=["another host's", "not an address"]
)
def test_an_address_that_cannot_be_bound_is_a_join_error(address: str, port: int) -> None:
    with pytest.raises(JoinError, match=address):
        open_engine(Config(), address=address, port=port)


def test_a_shortfall_of_the_receive_buffer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    engine = open_engine(Config(receive_buffer_bytes=1 << 40), address=HOST, port=0)
    assert "net.core.rmem_max" in caplog.text
    engine.close()


# ---------------------------------------------------------------------------------------------------- world size 1


def test_a_rank_alone_joins_at_once() -> None:
    started = time.monotonic()
    link = rendezvous.join(dist.HashStore(), rank=0, num_ranks=1, config=Config(), step_bytes=0)
    assert time.monotonic() - started < 2.0
    assert link.snapshot().peers == []
    link.close()


def test_it_joins_through_a_file_store_too(run_ranks, tmp_path: Path) -> None:
    assert run_ranks(joined_by_file, 2, str(tmp_path / "store")) == [1, 1]


def joined_by_file(member: Member, path: str) -> int:
    store = dist.FileStore(path, member.num_ranks)
    link = rendezvous.join(store, rank=member.rank, num_ranks=2, config=Config(join_timeout_s=20.0), step_bytes=0)
    member.barrier()
    num_peers = len(link.snapshot().peers)
    link.close()
    return num_peers
