"""Judges what the kernel grants a rank's socket: buffers, segmentation, ports, and what may come through."""

from __future__ import annotations

from holdfast.doctor.facts import NetworkFacts, Plan, Trip
from holdfast.doctor.finding import Finding, advice, ok, problem
from holdfast.doctor.port_probe import HIGHEST_PORT
from holdfast.doctor.quantities import bits_per_second, mebibytes

# A round trip in a loaded data centre. The true one is known only when peers talk.
ASSUMED_ROUND_TRIP_S = 1e-3


def needed_receive_bytes(bits_per_s: float, lateness_p50_us: float) -> int:
    """To keep a link full the peers need a round trip's bytes in flight, with the I/O thread as late as it usually is.

    A rank offers its peers half of its buffer; the other half is for what the kernel spends beside the bytes.
    """
    return int(2 * bits_per_s / 8 * (ASSUMED_ROUND_TRIP_S + lateness_p50_us / 1e6))


def check_receive_buffer(network: NetworkFacts, plan: Plan, lateness_p50_us: float) -> Finding | None:
    if network.socket is None:
        return None
    granted, limit, asked = network.socket.receive_bytes, network.socket.receive_limit, plan.config.receive_buffer_bytes
    speed = network.choice.bits_per_s
    need = needed_receive_bytes(speed, lateness_p50_us) if speed is not None else 0
    if granted < asked:
        return advice(
            "receive_buffer",
            f"{mebibytes(granted)} granted of {mebibytes(asked)} asked for",
            f"peers keep half of that in flight: at a round trip of 1 ms, {_window_rate(granted)} at most for all of them",
            *_raise_limit("rmem_max", max(asked, need)),
        )
    if granted < need:
        assert speed is not None
        return advice(
            "receive_buffer",
            f"{mebibytes(granted)} granted; a link of {bits_per_second(speed)} needs {mebibytes(need)}",
            f"peers keep half of that in flight: at a round trip of 1 ms, {_window_rate(granted)} at most for all of them",
            *_raise_limit("rmem_max", need),
            f"export HOLDFAST_RECEIVE_BUFFER_BYTES={need}",
        )
    return ok("receive_buffer", _granted(granted, limit))


def check_send_buffer(network: NetworkFacts, plan: Plan) -> Finding | None:
    if network.socket is None:
        return None
    granted, asked = network.socket.send_bytes, plan.config.send_buffer_bytes
    if granted < asked:
        return advice(
            "send_buffer",
            f"{mebibytes(granted)} granted of {mebibytes(asked)} asked for",
            "the I/O thread is told to wait more often while it sends",
            *_raise_limit("wmem_max", asked),
        )
    return ok("send_buffer", _granted(granted, network.socket.send_limit))


def _granted(granted: int, limit: int | None) -> str:
    if limit is None or limit >= granted:
        return f"{mebibytes(granted)} granted"
    return f"{mebibytes(granted)} granted; without CAP_NET_ADMIN it would be {mebibytes(limit)}"


def _raise_limit(name: str, num_bytes: int) -> tuple[str, ...]:
    return (
        f"sudo sysctl -w net.core.{name}={num_bytes}  # on the host itself, not in a container",
        f"echo net.core.{name}={num_bytes} | sudo tee -a /etc/sysctl.d/60-holdfast.conf  # also after a reboot",
    )


def _window_rate(granted: int) -> str:
    return bits_per_second(granted / 2 / ASSUMED_ROUND_TRIP_S * 8)


def check_udp(network: NetworkFacts) -> Finding | None:
    """What can be known about firewalls on this host without asking another."""
    trip, address = network.plain_trip, network.choice.address
    if trip is None:
        return None
    if _arrived(trip):
        return ok("udp", f"{trip.num_received} of {trip.num_sent} datagrams from {address} to itself arrived")
    return problem(
        "udp",
        f"{trip.num_received} of {trip.num_sent} datagrams from {address} to itself arrived{_because(trip)}",
        "a firewall or sandbox on this host keeps UDP from passing: no rank can join",
        "sudo nft list ruleset; sudo iptables -S  # look for drops of udp",
    )


def check_segmentation(network: NetworkFacts, plan: Plan) -> Finding | None:
    socket, trip = network.socket, network.segmented_trip
    if socket is None or trip is None:
        return None
    cost = "a datagram costs about ten times the CPU"
    if not plan.config.segmentation:
        return advice(
            "segmentation", "switched off", cost, "unset HOLDFAST_SEGMENTATION  # or take it out of holdfast.toml"
        )
    missing = [name for name, has in (("GSO", socket.has_gso), ("GRO", socket.has_gro)) if not has]
    if missing:
        return advice(
            "segmentation",
            f"the kernel has no UDP {' and no '.join(missing)}",
            cost,
            "uname -r  # GSO came with Linux 4.18, GRO with 5.0; sandboxes such as gVisor lack them",
        )
    if trip.error:
        return advice(
            "segmentation", f"a segmented batch was refused{_because(trip)}", cost, "uname -r; sudo dmesg | tail"
        )
    if not _arrived(trip):
        return problem(
            "segmentation",
            f"{trip.num_received} of {trip.num_sent} datagrams of a segmented batch arrived, without an error",
            "most of every gradient would be lost",
            "export HOLDFAST_SEGMENTATION=false",
        )
    if trip.num_reads == trip.num_sent:
        return advice(
            "segmentation", "GSO works; GRO joins nothing", "reading costs more CPU", "uname -r; sudo dmesg | tail"
        )
    return ok("segmentation", f"GSO and GRO work: {trip.num_sent} datagrams sent at once, read in {trip.num_reads}")


def _arrived(trip: Trip) -> bool:
    return not trip.error and trip.num_received == trip.num_sent


def _because(trip: Trip) -> str:
    return f": {trip.error}" if trip.error else ""


def check_ports(network: NetworkFacts, plan: Plan) -> Finding | None:
    if network.choice.error:
        return None
    first, last = plan.config.port, plan.config.port + plan.num_local_ranks - 1
    if first == 0:
        return ok("ports", "any that are free")
    planned = _span((first, last))
    move = f"export HOLDFAST_PORT={network.free_port}  # the same on all hosts; any other free range will do"
    if last > HIGHEST_PORT:
        return problem(
            "ports", f"{planned}: there is no port above {HIGHEST_PORT}", "the last ranks cannot open theirs", move
        )
    if network.taken_ports:
        who = f"sport >= :{first} and sport <= :{last}" if last > first else f"sport = :{first}"
        taken = "; ".join(
            f"{entry.port}: {entry.error}" + (f" ({entry.holder})" if entry.holder else "")
            for entry in network.taken_ports
        )
        return problem(
            "ports",
            f"of {planned}, {taken}" if last > first else taken,
            "ranks that need them cannot join; all is well if it is your job that has them",
            f"sudo ss -ulpn '{who}'  # who has them",
            move,
        )
    if network.ephemeral_ports:
        return advice(
            "ports",
            f"{planned} are free; the kernel may hand {_span(network.ephemeral_ports)} to any other program",
            "now and then a job does not start because a port is taken",
            move,
            f"# or add {planned} to net.ipv4.ip_local_reserved_ports",
        )
    return ok("ports", f"{planned} free")


def _span(ports: tuple[int, ...]) -> str:
    return str(ports[0]) if ports[0] == ports[-1] else f"{ports[0]}-{ports[-1]}"


def check_firewall(network: NetworkFacts, plan: Plan) -> Finding | None:
    """Whether another host's firewall lets datagrams through cannot be known from here; what it must let through can."""
    if not network.spans_hosts:
        return None
    if plan.config.port:
        ports = (plan.config.port, plan.config.port + plan.num_local_ranks - 1)
        return ok("firewall", f"unknown from here; UDP {_span(ports)} must pass between the hosts")
    first, last = network.free_port, network.free_port + plan.num_local_ranks - 1
    return advice(
        "firewall",
        "unknown from here; as no port is set, every UDP port must pass between the hosts",
        "where one does not, joining ends in PeerUnreachable",
        f"export HOLDFAST_PORT={first}  # on all hosts, if there is a firewall; then open the range on each:",
        f"sudo ufw allow {_span((first, last)).replace('-', ':')}/udp  # or in the security group",
    )
