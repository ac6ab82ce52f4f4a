"""A host has its address, its card's rate and TCP settings of its own; the machine's are as they were."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LabUnavailable
from holdfast.lab.host import GSO_MAX_BYTES, INTERFACE, MTU_BYTES, TBF_BURST_BYTES, Host
from holdfast.link.interface import host_identity
from lab.lab_processes import needs_lab

pytestmark = needs_lab

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(3, 250e6)
    yield host
    host.close()


def card(host: Host) -> tuple[Any, Any]:
    """The card's link and the parameters of its qdisc, as the kernel tells them."""

    def ask() -> tuple[Any, Any]:
        from pyroute2 import IPRoute

        with IPRoute() as routing:
            (index,) = routing.link_lookup(ifname=INTERFACE)
            (link,) = routing.get_links(index)
            (qdisc,) = routing.get_qdiscs(index)
            assert qdisc.get_attr("TCA_KIND") == "tbf"
            return link, qdisc.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")

    return host.run(ask)


def test_its_processes_are_on_another_host_than_this_one(host: Host) -> None:
    """Else ranks of the lab would meet in shared memory."""
    command = [sys.executable, "-c", "from holdfast.link.interface import host_identity; print(host_identity())"]
    there = host.run(lambda: subprocess.check_output(command, text=True, timeout=60).strip())
    boot = host_identity().partition("/")[0]
    assert there.partition("/")[0] == boot
    assert there != host_identity()


def test_the_card_is_up_with_its_address_and_its_rate(host: Host) -> None:
    link, shaper = card(host)
    assert link["state"] == "up"
    assert link.get_attr("IFLA_MTU") == MTU_BYTES
    assert link.get_attr("IFLA_GSO_MAX_SIZE") == GSO_MAX_BYTES
    assert shaper["rate"] == 250e6 / 8
    assert shaper["buffer"] == pytest.approx(TBF_BURST_BYTES / 250e6 * 8 * 15_625_000, rel=0.01)  # in scheduler ticks

    def bind() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("10.77.0.4", 0))
            return str(probe.getsockname()[0])

    assert host.run(bind) == host.address == "10.77.0.4"


def test_the_rate_changes_in_place(host: Host) -> None:
    host.set_rate(31.25e6)
    assert card(host)[1]["rate"] == 31.25e6 / 8


def test_tcp_settings_are_the_hosts_own(host: Host) -> None:
    allowed, machine = ALLOWED.read_text(), Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    for name in ("cubic", "reno"):
        host.set_tcp(congestion_control=name, rto_min_us=5000)
        assert (host.tcp().congestion_control, host.tcp().rto_min_us) == (name, 5000)
        assert host.run(_algorithm_of_a_new_connection) == name
    assert ALLOWED.read_text() == allowed
    assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == machine


def _algorithm_of_a_new_connection() -> str:
    with socket.socket() as connection:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def test_an_unknown_congestion_control_is_named(host: Host) -> None:
    with pytest.raises(LabUnavailable, match="no congestion control 'carrier-pigeon'"):
        host.set_tcp(congestion_control="carrier-pigeon")


def test_a_closed_host_leaves_no_descriptor() -> None:
    Host(0, 1e6).close()  # whatever is opened once for good
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Host(0, 1e6).close()
    assert set(os.listdir("/proc/self/fd")) == before
