"""Asks the kernel about the network: own address, routes, buffers, ports. Sends nothing but a few datagrams to itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from holdfast import _native
from holdfast.config import Config
from holdfast.doctor import loopback_trip, port_probe
from holdfast.doctor.facts import Choice, NetworkFacts, Peer, Plan, Route, SocketFacts
from holdfast.errors import HoldfastError
from holdfast.link import interface

_INTERFACES = Path("/sys/class/net")
_LIMITS = Path("/proc/sys/net/core")


def probe_network(plan: Plan) -> NetworkFacts:
    routes = tuple(_routes(plan))
    choice = _choose(plan, routes)
    if choice.error:
        return NetworkFacts(choice, routes=routes)
    size = _datagram_bytes(plan.config, choice, routes)
    ports = port_probe.planned_ports(plan.config.port, plan.num_local_ranks)
    return NetworkFacts(
        choice=choice,
        datagram_bytes=size,
        routes=routes,
        socket=_probe_socket(plan.config, choice.address),
        plain_trip=loopback_trip.plain(choice.address, size),
        segmented_trip=loopback_trip.segmented(choice.address, size),
        taken_ports=tuple(port_probe.taken(choice.address, ports)),
        ephemeral_ports=tuple(port_probe.ephemeral(ports)),
        free_port=port_probe.free_range(choice.address, plan.num_local_ranks),
    )


def _datagram_bytes(config: Config, choice: Choice, routes: Iterable[Route]) -> int:
    if config.datagram_bytes is not None:
        return config.datagram_bytes
    elsewhere = [route.address for route in routes if not route.error and not route.is_this_host]
    return interface.datagram_bytes_for(elsewhere or [choice.address])


def _routes(plan: Plan) -> Iterable[Route]:
    if plan.master is not None:
        yield _route(Peer(plan.master), is_master=True)
    for peer in plan.peers:
        yield _route(peer, is_master=False)


def _route(peer: Peer, *, is_master: bool) -> Route:
    route = Route(name=str(peer), host=peer.host, is_master=is_master)
    try:
        address = interface.resolve(peer.host)
        is_this_host = interface.is_loopback(address) or bool(_native.interface_holding(address))
        route = replace(route, address=address, is_this_host=is_this_host)
        source = _native.source_address_towards(address)
        return replace(
            route,
            source=source,
            interface=_native.interface_holding(source),
            mtu=_native.path_mtu(address),
            datagram_bytes=interface.datagram_bytes_for([address]),
        )
    except (HoldfastError, OSError, RuntimeError, ValueError) as error:
        return replace(route, error=getattr(error, "message", str(error)))


def _choose(plan: Plan, routes: tuple[Route, ...]) -> Choice:
    spans_hosts = any(not route.is_this_host for route in routes)
    # torchrun always names a master; without one, the first peer that can be reached shows which way out is taken.
    target = plan.master or next((route.host for route in routes if not route.error and not route.is_this_host), None)
    try:
        chosen = interface.choose_address(interface=plan.config.interface, single_host=not spans_hosts, master=target)
        _native.path_mtu(chosen.address)  # not even to itself, where loopback is down
    except HoldfastError as error:
        return Choice(error=error.message, what_to_try=error.what_to_try)
    except (OSError, RuntimeError, ValueError) as error:
        return Choice(error=str(error), what_to_try="`sudo ip link set dev lo up`, if loopback is down")
    by_peer = plan.master is None and plan.config.interface is None and spans_hosts
    return Choice(
        address=chosen.address,
        interface=chosen.interface,
        reason=f"route to {target}" if by_peer else chosen.reason,
        is_loopback=interface.is_loopback(chosen.address),
        is_up=_read(_INTERFACES / chosen.interface / "operstate") != "down",
        bits_per_s=_speed(chosen.interface),
    )


def _speed(name: str) -> float | None:
    megabits = _number(_INTERFACES / name / "speed")
    return megabits * 1e6 if megabits is not None and megabits > 0 else None


def _probe_socket(config: Config, address: str) -> SocketFacts | None:
    try:
        engine = _native.Engine(
            host=address,
            port=0,
            receive_buffer_bytes=config.receive_buffer_bytes,
            send_buffer_bytes=config.send_buffer_bytes,
            use_segmentation=True,
        )
    except (OSError, RuntimeError):
        return None  # the plain trip fails for the same reason, and says it
    try:
        return SocketFacts(
            receive_bytes=engine.receive_buffer_bytes,
            send_bytes=engine.send_buffer_bytes,
            has_gso=engine.has_gso,
            has_gro=engine.has_gro,
            receive_limit=_number(_LIMITS / "rmem_max"),
            send_limit=_number(_LIMITS / "wmem_max"),
        )
    finally:
        engine.close()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.lstrip("-").isdigit() else None
