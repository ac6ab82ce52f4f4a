"""Facts of a host on which all is well, to be spoiled one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.config import Config
from holdfast.doctor.facts import (
    Choice,
    ClockFacts,
    Facts,
    NetworkFacts,
    Plan,
    ProcessorFacts,
    Rate,
    Route,
    SocketFacts,
    SystemFacts,
    TorchFacts,
    Trip,
)

PEER = Route(
    name="10.0.0.2",
    host="10.0.0.2",
    address="10.0.0.2",
    source="10.0.0.1",
    interface="eth0",
    mtu=1_500,
    datagram_bytes=1_472,
)
SYSTEM = SystemFacts(kernel="6.1.0-18-amd64", libc="glibc 2.36", torch=TorchFacts("2.13.0+cpu", True), num_cpus=8)
CLOCK = ClockFacts(source="tsc", read_ns=40, lateness_p50_us=60, lateness_p99_us=200)
PROCESSOR = ProcessorFacts(
    machine="x86_64",
    features=("avx2", "f16c", "aes", "pclmul", "vaes", "vpclmulqdq"),
    instruction_set="avx2",
    seals_with_vector_instructions=True,
    openssl="3.0.19",
    datagram_bytes=1_472,
    rates={"encrypted": Rate(4e9, 4e9), "authenticated": Rate(8e9, 8e9)},
)
NETWORK = NetworkFacts(
    choice=Choice("10.0.0.1", "eth0", "route to the master 10.0.0.2", bits_per_s=10e9),
    datagram_bytes=1_472,
    routes=(PEER,),
    socket=SocketFacts(8 << 20, 8 << 20, True, True, receive_limit=16 << 20, send_limit=16 << 20),
    plain_trip=Trip(8, 8, 8),
    segmented_trip=Trip(8, 8, 1),
)
# Between hosts, a well kept job has a key file and a port that a firewall knows.
CONFIG = Config(port=29_600, key_file="job.key")


def host(config: Config = CONFIG, *, ranks: int = 4, **spoiled: Any) -> Facts:
    """Names are `part__fact`: host(system__kernel="4.4.0") is the good host with an old kernel."""
    parts: dict[str, Any] = {"system": SYSTEM, "clock": CLOCK, "processor": PROCESSOR, "network": NETWORK}
    for name, value in spoiled.items():
        *path, fact = name.split("__")
        parts[path[0]] = _spoil(parts[path[0]], path[1:], fact, value)
    return Facts(Plan(config, ranks), **parts)


def _spoil(part: Any, path: list[str], fact: str, value: Any) -> Any:
    if path:
        return replace(part, **{path[0]: _spoil(getattr(part, path[0]), path[1:], fact, value)})
    return replace(part, **{fact: value})
