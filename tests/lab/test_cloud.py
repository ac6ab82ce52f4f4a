"""Hosts of a cloud reach each other through the switch, under the conditions that are set, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, SwitchFailed
from holdfast.lab.cloud import Cloud
from holdfast.lab.conditions import Episodes
from holdfast.lab.profile import load_profile
from lab.lab_processes import datagram_arrives, marked_processes, needs_lab

pytestmark = needs_lab


@pytest.fixture
def datagrams(cloud: Cloud) -> Iterator[list[socket.socket]]:
    """A bound UDP socket in each host."""

    def bind(address: str) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((address, 0))
        return opened

    sockets = [host.run(lambda address=host.address: bind(address)) for host in cloud.hosts]  # type: ignore[misc]
    yield sockets
    for opened in sockets:
        opened.close()


def test_datagrams_cross_and_are_counted(cloud: Cloud, datagrams: list[socket.socket]) -> None:
    cloud.switch.reset()
    assert datagram_arrives(datagrams[0], datagrams[1], b"ping" * 100)
    assert datagram_arrives(datagrams[1], datagrams[0], b"pong" * 10)
    report = cloud.switch.report()
    assert [(port.packets_from_host, port.bytes_from_host) for port in report.ports] == [(1, 428), (1, 68)]
    assert [(port.packets_to_host, port.bytes_to_host) for port in report.ports] == [(1, 68), (1, 428)]
    assert not any(report.losses.values())
    assert report.lateness_max_us >= report.lateness_p50_us >= 0


def test_tcp_crosses_whole_and_no_faster_than_the_link(cloud: Cloud) -> None:
    size = 1_000_000
    listener = cloud.hosts[1].run(lambda: socket.create_server((cloud.hosts[1].address, 0)))
    listener.settimeout(10)
    payload = os.urandom(size)

    def send() -> None:
        with socket.create_connection(listener.getsockname(), timeout=10) as connection:
            connection.sendall(payload)

    start_ns = time.monotonic_ns()
    sender = threading.Thread(target=lambda: cloud.hosts[0].run(send))
    sender.start()
    connection, _ = listener.accept()
    connection.settimeout(20)
    with listener, connection:
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    took_s = (time.monotonic_ns() - start_ns) / 1e9
    sender.join()
    assert received == payload
    bound_s = cloud.switch.capacity_bound_s(start_ns, [size, 0], [0, size])
    assert bound_s == pytest.approx(size * 8 / 100e6, rel=0.01)
    assert took_s >= bound_s * 0.97  # the card lets one burst of 20 kB go ahead


def test_conditions_change_while_it_runs_and_changes_are_undone(cloud: Cloud, datagrams: list[socket.socket]) -> None:
    sender, receiver = datagrams
    cloud.change("down", lambda now: now.with_port(1, lambda port: dataclasses.replace(port, down=True)))
    assert not datagram_arrives(sender, receiver, b"lost", limit_s=0.2)
    cloud.set_profile(load_profile("wan"))
    assert cloud.conditions.ports[1].down  # a change outlives the network beneath it
    cloud.undo("down")
    cloud.set_conditions(
        cloud.conditions.with_paths(lambda path: dataclasses.replace(path, loss_ratio=0.0, delay_ms=120.0))
    )
    began = time.monotonic()
    assert datagram_arrives(sender, receiver, b"late")
    assert time.monotonic() - began >= 0.12
    cloud.undo("never done")


def test_a_seed_draws_the_same_network_again(cloud: Cloud) -> None:
    for_an_hour = Episodes(3.6e6, 3.6e6)
    cloud.set_conditions(
        cloud.conditions.with_ports(lambda port: dataclasses.replace(port, frozen=True, freezes=for_an_hour))
    )

    def frozen_hosts(seed: int) -> tuple[bool, ...]:
        cloud.switch.draw_anew(seed)
        now_ns = time.monotonic_ns()
        return tuple(seconds > 0 for seconds in cloud.switch.frozen_s(now_ns, now_ns + 1000))

    first = [frozen_hosts(seed) for seed in range(2**64 - 20, 2**64)]
    assert [frozen_hosts(seed) for seed in range(2**64 - 20, 2**64)] == first
    assert set(first) == {(False, False), (False, True), (True, False), (True, True)}


def test_a_seed_that_is_none_is_refused(cloud: Cloud) -> None:
    for seed in (-1, 2**64):
        with pytest.raises(SwitchFailed, match="refused to draw_anew"):
            cloud.switch.draw_anew(seed)


def test_a_slower_link_slows_the_card_too(cloud: Cloud) -> None:
    cloud.change("slow", lambda now: now.with_port(0, lambda port: dataclasses.replace(port, uplink_bits_per_s=10e6)))
    assert [host.bits_per_s for host in cloud.hosts] == [10e6, 100e6]
    cloud.undo("slow")
    assert [host.bits_per_s for host in cloud.hosts] == [100e6, 100e6]


def test_a_closed_cloud_leaves_nothing_also_if_its_switch_died() -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    already = set(marked_processes(os.getpid()))
    with Cloud(2, "clean") as cloud:
        assert set(marked_processes(os.getpid())) - already == {cloud.switch.process.pid}
        cloud.switch.process.kill()
        cloud.switch.process.wait(10)
        with pytest.raises(SwitchFailed, match="ended with code -9"):
            cloud.switch.check()
        with pytest.raises(SwitchFailed):
            cloud.switch.report()
    cloud.close()
    assert set(marked_processes(os.getpid())) == already
    assert set(os.listdir("/proc/self/fd")) <= descriptors


def test_an_error_while_building_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    already = set(marked_processes(os.getpid()))
    # The switch cannot start where its module is not found.
    monkeypatch.setattr("holdfast.lab.switch_client.__package__", "holdfast.nowhere")
    with pytest.raises(SwitchFailed):
        Cloud(3, "clean")
    assert set(marked_processes(os.getpid())) == already
    assert set(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize("num_hosts", [0, 65])
def test_an_impossible_number_of_hosts_is_named(num_hosts: int) -> None:
    with pytest.raises(ConfigError, match=f"a lab of {num_hosts} hosts"):
        Cloud(num_hosts)


def test_no_namespace_has_a_name(cloud: Cloud) -> None:
    named = Path("/run/netns")
    inodes = {os.stat(entry).st_ino for entry in named.iterdir()} if named.is_dir() else set()
    assert not inodes & {host.namespace.inode for host in cloud.hosts}
