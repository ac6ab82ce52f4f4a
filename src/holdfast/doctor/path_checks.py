"""Judges the way to the peers: own address, routes, MTU."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.config import Config
from holdfast.doctor.facts import NetworkFacts, Route
from holdfast.doctor.finding import Finding, advice, ok, problem
from holdfast.doctor.quantities import bits_per_second, readable

SMALLEST_DATAGRAM_BYTES = 256  # min_datagram_bytes of the native core
# The smallest MTU that IPv6 allows (RFC 8200, section 5), less its headers. Below, something is set wrong.
USUAL_DATAGRAM_BYTES = 1_280 - 48


def check_interface(network: NetworkFacts) -> Finding:
    choice = network.choice
    if choice.error:
        return problem(
            "interface",
            choice.error,
            "no rank of this host can join",
            "ip -brief address  # which interfaces there are",
            *([f"# {choice.what_to_try}"] if choice.what_to_try else []),
            *_take_way_out(network),
        )
    found = f"{choice.address} on {choice.interface or 'no interface'} ({choice.reason})"
    if choice.is_loopback and network.spans_hosts:
        return problem(
            "interface",
            found,
            "no other host reaches a loopback address: joining ends in LoopbackAcrossHosts",
            "# set MASTER_ADDR to an address that the other hosts reach, not a name that /etc/hosts gives a 127 address;",
            "# if this host is the master, one of its own:",
            "ip -brief address",
            *_take_way_out(network),
        )
    if not choice.is_up:
        return problem(
            "interface",
            f"{found}: its link is down",
            "nothing leaves or arrives through it",
            f"sudo ip link set dev {choice.interface} up",
            "ip -brief link  # then still DOWN: the cable, the switch, or another interface",
        )
    speed = "" if choice.bits_per_s is None else f", {bits_per_second(choice.bits_per_s)}"
    return ok("interface", found + speed)


def check_routes(network: NetworkFacts) -> Iterator[Finding]:
    for route in network.routes:
        yield _check_route(route, network)


def _check_route(route: Route, network: NetworkFacts) -> Finding:
    choice = network.choice
    name = f"MASTER_ADDR {route.name}" if route.is_master else route.name
    if route.error:
        return problem(
            "route",
            f"{name}: {route.error}",
            "torch waits there for the other ranks, then gives up" if route.is_master else "no rank there can join",
            f"ip route get {route.address}" if route.address else f"getent ahosts {route.host}",
            "# use an address that every host has a route to, or a name that every host resolves to one",
        )
    if route.is_this_host:
        return ok("route", f"{name} is this host")
    found = f"{name} from {route.source} on {route.interface}, MTU {readable(route.mtu)}"
    if choice.error or choice.is_loopback:
        return ok("route", found)
    if (":" in route.address) != (":" in choice.address):
        return problem(
            "route",
            found,
            f"ranks here would use {choice.address}, of the other IP family: their datagrams cannot go there",
            f"export HOLDFAST_INTERFACE={route.source}  # and peers by addresses of one family",
        )
    if route.interface != choice.interface:
        return advice(
            "route",
            found,
            f"ranks here would use {choice.address} on {choice.interface}: datagrams leave through one network under an "
            "address of another, and are often dropped on the way",
            f"export HOLDFAST_INTERFACE={route.interface}",
        )
    return ok("route", found)


def check_mtu(network: NetworkFacts, config: Config) -> Finding | None:
    """None where no address was found: there is no path to speak of."""
    if network.choice.error:
        return None
    paths = [route for route in network.routes if not route.is_this_host and not route.error]
    narrowest = min(paths, key=lambda route: route.datagram_bytes, default=None)
    if narrowest is None:
        return ok("mtu", f"datagrams of {readable(network.datagram_bytes)} bytes within this host")
    size = narrowest.datagram_bytes
    found = f"{readable(narrowest.mtu)} bytes towards {narrowest.name}, so datagrams of {readable(size)}"
    mend = (
        f"ip route get {narrowest.address}; ip link show dev {narrowest.interface}",
        f"sudo ip link set dev {narrowest.interface} mtu 1500  # on all hosts, if the network carries it",
    )
    if config.datagram_bytes is not None and config.datagram_bytes > size:
        return problem(
            "mtu",
            f"{found}; but datagram_bytes is set to {readable(config.datagram_bytes)}",
            "the kernel refuses larger datagrams: nothing arrives",
            "unset HOLDFAST_DATAGRAM_BYTES  # or take datagram_bytes out of holdfast.toml: the path decides",
        )
    if size < SMALLEST_DATAGRAM_BYTES:
        return problem("mtu", found, f"a datagram needs {SMALLEST_DATAGRAM_BYTES} bytes: joining fails", *mend)
    if size < USUAL_DATAGRAM_BYTES:
        return advice("mtu", found, "more datagrams for the same gradient, and each costs the same time", *mend)
    return ok("mtu", found)


def _take_way_out(network: NetworkFacts) -> Iterator[str]:
    """By the first route that really leaves this host, where there is one."""
    for route in network.routes:
        if not route.is_this_host and not route.error:
            yield f"export HOLDFAST_INTERFACE={route.interface}  # the way to {route.name}"
            return
