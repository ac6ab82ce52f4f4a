"""Which own address peers are told, and how large a datagram may be."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError, JoinError
from holdfast.link import interface
from holdfast.link.interface import choose_address, datagram_bytes_for, host_identity, is_loopback


def test_on_a_single_host_it_is_loopback() -> None:
    chosen = choose_address(interface=None, single_host=True, master="198.51.100.7")
    assert (chosen.address, chosen.interface) == ("127.0.0.1", "lo")
    assert "this host" in chosen.reason


@pytest.mark.parametrize(("given", "address"), [("lo", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_a_configured_interface_or_address_is_used(given: str, address: str) -> None:
    chosen = choose_address(interface=given, single_host=False, master=None)
    assert (chosen.address, chosen.interface) == (address, "lo")
    assert repr(given) in chosen.reason


def test_between_hosts_the_route_to_the_master_decides() -> None:
    chosen = choose_address(interface=None, single_host=False, master="127.0.0.1")
    assert chosen.address == "127.0.0.1"
    assert "route to the master 127.0.0.1" in chosen.reason


def test_a_master_may_be_a_name() -> None:
    assert choose_address(interface=None, single_host=False, master="localhost").address in ("127.0.0.1", "::1")


def test_without_a_master_between_hosts_it_says_what_to_set() -> None:
    with pytest.raises(JoinError, match=r"MASTER_ADDR.*interface"):
        choose_address(interface=None, single_host=False, master=None)


def test_a_master_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(JoinError, match="no-such-host"):
        choose_address(interface=None, single_host=False, master="no-such-host.invalid")


@pytest.mark.parametrize("given", ["none0", "198.51.100.7", "2001:db8::1", "a-very-long-interface-name"])
def test_an_interface_this_host_lacks_is_refused_with_those_it_has(given: str) -> None:
    with pytest.raises(ConfigError, match=rf"{given}.*one of .*lo"):
        choose_address(interface=given, single_host=True, master=None)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)
def test_loopback_is_recognised(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_datagrams_fit_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    mtu = {"10.0.0.1": 9_000, "10.0.0.2": 1_500, "fd00::1": 1_500}
    monkeypatch.setattr(interface._native, "path_mtu", lambda peer: mtu[peer])
    assert datagram_bytes_for([]) == 16_320
    assert datagram_bytes_for(["10.0.0.1"]) == 9_000 - 28
    assert datagram_bytes_for(["10.0.0.1", "10.0.0.2"]) == 1_472
    assert datagram_bytes_for(["fd00::1"]) == 1_452


def test_loopback_takes_the_largest_datagram() -> None:
    assert datagram_bytes_for(["127.0.0.1", "::1"]) == 16_320


def test_the_host_identity_is_stable() -> None:
    assert host_identity() == host_identity()
    assert "/" in host_identity()
