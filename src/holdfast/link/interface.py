"""Which of this machine's addresses the peers should use, and how large a datagram to them may be."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast import _native
from holdfast.errors import ConfigError, JoinError

LOOPBACK = "127.0.0.1"
UDP_AND_IPV4_BYTES = 28
UDP_AND_IPV6_BYTES = 48
# Four of these make one 64 KiB offload batch, which on loopback is the fastest shape measured.
LARGEST_DATAGRAM_BYTES = 16_320


@dataclass(frozen=True)
class ChosenAddress:
    """An own address, the interface that has it, and why it was chosen."""

    address: str
    interface: str
    reason: str


def host_identity() -> str:
    """The same for processes that can reach each other over loopback, different otherwise."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def choose_address(*, interface: str | None, single_host: bool, master: str | None) -> ChosenAddress:
    """The configured interface; loopback on a single host; else whatever the kernel routes to the master through."""
    if interface is not None:
        address = _address_of(interface)
        return ChosenAddress(address, _native.interface_holding(address), f"configured as {interface!r}")
    if single_host:
        return ChosenAddress(LOOPBACK, _native.interface_holding(LOOPBACK), "all ranks are on this host")
    if master is None:
        raise JoinError(
            "the job spans several hosts and nothing says which network joins them",
            what_to_try="set MASTER_ADDR, or `interface` to an interface or own address the other hosts can reach",
        )
    try:
        address = _native.source_address_towards(resolve(master))
    except RuntimeError as error:
        raise JoinError(f"no route to the master {master}: {error}", what_to_try="set `interface`") from error
    return ChosenAddress(address, _native.interface_holding(address), f"route to the master {master}")


def datagram_bytes_for(peers: Iterable[str]) -> int:
    """The largest datagram that fits the path MTU to every one of these addresses."""
    sizes = [LARGEST_DATAGRAM_BYTES]
    for peer in peers:
        overhead = UDP_AND_IPV6_BYTES if ":" in peer else UDP_AND_IPV4_BYTES
        sizes.append(_native.path_mtu(peer) - overhead)
    return min(sizes)


def resolve(host: str) -> str:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise JoinError(f"cannot resolve {host!r}: {error}", what_to_try="use an address") from error
    # IPv4 first: a name for both families often has only its IPv4 side routed between hosts.
    answers.sort(key=lambda answer: answer[0] != socket.AF_INET)
    return str(answers[0][4][0])


def _address_of(interface: str) -> str:
    try:
        ipaddress.ip_address(interface.partition("%")[0])
    except ValueError:
        pass
    else:
        if not _native.interface_holding(interface):
            raise ConfigError(f"no interface of this host has the address {interface}", what_to_try=_known_interfaces())
        return interface
    address = _first_address(interface)
    if address is None:
        raise ConfigError(f"interface {interface!r} has no address or does not exist", what_to_try=_known_interfaces())
    return address


def _first_address(interface: str) -> str | None:
    import fcntl
    import struct

    request = struct.pack("256s", interface.encode()[:15])
    siocgifaddr = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), siocgifaddr, request)
            return socket.inet_ntoa(answer[20:24])
        except OSError:
            pass
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        digits, _index, _prefix, _scope, _flags, name = line.split()
        if name == interface:
            address = ipaddress.ip_address(bytes.fromhex(digits))
            return f"{address}%{interface}" if address.is_link_local else str(address)
    return None


def _known_interfaces() -> str:
    return "one of " + ", ".join(name for _, name in socket.if_nameindex())
