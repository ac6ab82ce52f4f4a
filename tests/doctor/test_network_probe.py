"""What this machine's kernel says about addresses, routes, sockets and ports. Nothing leaves the host."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config import Config
from holdfast.doctor import loopback_trip, path_checks, port_probe
from holdfast.doctor.facts import Peer, Plan
from holdfast.doctor.network_probe import probe_network

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_alone_it_is_loopback() -> None:
    network = probe_network(Plan(Config()))
    assert (network.choice.address, network.choice.interface) == ("127.0.0.1", "lo")
    assert network.choice.is_loopback
    assert network.choice.is_up
    assert not network.spans_hosts
    assert network.socket is not None
    assert 0 < network.socket.receive_bytes <= Config().receive_buffer_bytes


def test_peers_that_cannot_be_resolved_are_other_hosts_with_an_error() -> None:
    network = probe_network(Plan(Config(interface="lo"), peers=(Peer("no-such-host.invalid", 7),)))
    assert network.spans_hosts
    assert network.routes[0].name == "no-such-host.invalid:7"
    assert "cannot resolve" in network.routes[0].error
    assert network.routes[0].address == ""
    assert network.choice.is_loopback  # which the checks then call a problem


def test_a_master_that_is_this_host_is_no_other_host() -> None:
    network = probe_network(Plan(Config(), master="localhost"))
    assert network.routes[0].is_master
    assert network.routes[0].is_this_host
    assert not network.spans_hosts


def test_every_loopback_address_is_this_host() -> None:
    assert probe_network(Plan(Config(), peers=(Peer("127.5.5.5"),))).routes[0].is_this_host


def test_without_any_network_the_error_is_told_and_nothing_raised() -> None:
    ask = (
        "from holdfast.config import Config; from holdfast.doctor.facts import Peer, Plan;"
        "from holdfast.doctor.network_probe import probe_network;"
        "network = probe_network(Plan(Config(), peers=(Peer('127.0.0.1'),)));"
        "assert 'unreachable' in network.choice.error, network; assert 'lo up' in network.choice.what_to_try;"
        "assert 'unreachable' in network.routes[0].error, network"
    )
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, timeout=10).returncode != 0:
        pytest.skip("network namespaces are not to be had here")
    subprocess.run([*alone, sys.executable, "-c", ask], check=True, timeout=60)


def test_an_interface_that_does_not_exist_is_told_with_those_that_do() -> None:
    network = probe_network(Plan(Config(interface="none0")))
    assert "none0" in network.choice.error
    assert "lo" in network.choice.what_to_try
    assert network.socket is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("size", [256, 1_472, 16_320])
def test_datagrams_to_itself_arrive(address: str, size: int) -> None:
    trip = loopback_trip.plain(address, size)
    assert trip.error == ""
    assert trip.num_received == trip.num_sent == trip.num_reads >= 4


def test_a_segmented_batch_is_counted_in_datagrams() -> None:
    trip = loopback_trip.segmented("127.0.0.1", 1_472)
    if trip.error:
        pytest.skip(f"this kernel has no segmentation: {trip.error}")
    assert trip.num_received == trip.num_sent == 8
    assert trip.num_reads < 8


def test_an_address_of_another_host_is_an_error_and_not_a_wait() -> None:
    assert loopback_trip.plain("198.51.100.7", 1_472).error


def test_a_taken_port_is_told_with_its_holder(taken_port: int) -> None:
    (found,) = port_probe.taken("127.0.0.1", [taken_port])
    assert found.port == taken_port
    assert "in use" in found.error
    assert found.holder.endswith(f"process {os.getpid()}")


def test_ports_that_are_free_are_not_told(taken_port: int) -> None:
    assert list(port_probe.taken("127.0.0.2", [taken_port])) == []


def test_rank_k_uses_the_port_plus_k() -> None:
    assert list(port_probe.planned_ports(29_600, 3)) == [29_600, 29_601, 29_602]
    assert list(port_probe.planned_ports(0, 3)) == []
    assert list(port_probe.planned_ports(65_535, 3)) == [65_535]


def test_ports_the_kernel_hands_out_are_known_unless_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_probe, "_IPV4", tmp_path)
    assert port_probe.ephemeral([40_000]) == []
    (tmp_path / "ip_local_port_range").write_text("32768\t60999\n")
    (tmp_path / "ip_local_reserved_ports").write_text("8080,40001-40002\n")
    assert port_probe.ephemeral([32_767, 32_768, 40_000, 40_001, 40_002, 60_999, 61_000]) == [32_768, 40_000, 60_999]
    (tmp_path / "ip_local_reserved_ports").write_text("\n")
    assert port_probe.ephemeral([40_001]) == [40_001]


def test_the_smallest_datagram_is_the_native_core_s() -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "native" / "core").glob("*.[ch]*")))
    assert re.findall(r"\bmin_datagram_bytes = (\d+)", sources) == [str(path_checks.SMALLEST_DATAGRAM_BYTES)]


def test_a_range_of_ports_that_somebody_has_is_not_suggested() -> None:
    first = port_probe.free_range("127.0.0.1", 4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", first + 3))
        other = port_probe.free_range("127.0.0.1", 4)
    assert not set(range(first, first + 4)) & set(range(other, other + 4))
