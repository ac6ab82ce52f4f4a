"""What the probes learn about a host. Plain data: every value can be that of another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.config import Config


@dataclass(frozen=True)
class Peer:
    """Where a rank on another host is meant to run. The port is only repeated: nothing is sent there."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        if self.port is None:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Plan:
    """The job that is meant to run here."""

    config: Config
    num_local_ranks: int = 1
    peers: tuple[Peer, ...] = ()
    master: str | None = None
    """MASTER_ADDR, as torchrun would set it."""


@dataclass(frozen=True)
class TorchFacts:
    """What a fresh Python process says about torch."""

    version: str | None
    has_gloo: bool = False
    error: str = ""
    """Why it cannot be imported; empty when it can."""


@dataclass(frozen=True)
class SystemFacts:
    kernel: str
    """As `uname -r` prints it."""

    libc: str
    torch: TorchFacts
    num_cpus: int
    """Those this process may run on."""

    cpu_quota: float | None = None
    """Cores' worth of time that the cgroup grants; none: no limit."""

    extension_error: str = ""
    """Why the native module cannot be loaded; empty when it can."""

    key_error: str = ""
    """Why the key file is of no use; empty when it is, or when none is set."""


@dataclass(frozen=True)
class ClockFacts:
    source: str
    read_ns: float
    """One reading of the monotonic clock, as fast as it gets."""

    lateness_p50_us: float
    lateness_p99_us: float
    """How much later than asked for a sleep of one millisecond returns."""

    num_backward: int = 0
    """Readings of the monotonic clock that lie before an earlier one."""

    wall_jump_ms: float = 0.0
    """How far the wall clock moved against the monotonic one while it was watched."""


@dataclass(frozen=True)
class Rate:
    """Bytes of datagrams per second that one core seals, and that it opens."""

    seal: float
    open: float

    @property
    def both(self) -> float:
        """For as many bytes out as in, which is what an all-reduce has: one I/O thread does both."""
        return 1 / (1 / self.seal + 1 / self.open)


@dataclass(frozen=True)
class ProcessorFacts:
    machine: str
    """As `uname -m` prints it."""

    features: tuple[str, ...]
    instruction_set: str
    """What the kernels that sum gradients use."""

    seals_with_vector_instructions: bool
    openssl: str
    datagram_bytes: int
    """The size at which the rates were measured."""

    rates: Mapping[str, Rate]
    """By protection; `insecure` seals nothing and has none."""


@dataclass(frozen=True)
class Choice:
    """The own address that a job would use here; without one, why not."""

    address: str = ""
    interface: str = ""
    reason: str = ""
    error: str = ""
    what_to_try: str = ""
    is_loopback: bool = False
    is_up: bool = True
    bits_per_s: float | None = None
    """What the interface's driver says; none for virtual ones and loopback."""


@dataclass(frozen=True)
class Route:
    """What the kernel would do with a datagram to a peer."""

    name: str
    """As the user wrote it."""

    host: str
    address: str = ""
    """Empty where the host cannot be resolved."""

    source: str = ""
    interface: str = ""
    mtu: int = 0
    datagram_bytes: int = 0
    """The largest that the MTU lets through whole."""

    is_this_host: bool = False
    is_master: bool = False
    error: str = ""
    """Why there is none; empty when there is one."""


@dataclass(frozen=True)
class SocketFacts:
    """What the kernel grants a socket like a rank's, and where its limits lie (none: not to be read here)."""

    receive_bytes: int
    send_bytes: int
    has_gso: bool
    has_gro: bool
    receive_limit: int | None = None
    send_limit: int | None = None


@dataclass(frozen=True)
class Trip:
    """Datagrams sent from the own address to itself: how many left, how many came, in how many reads."""

    num_sent: int
    num_received: int
    num_reads: int
    error: str = ""


@dataclass(frozen=True)
class TakenPort:
    port: int
    error: str
    holder: str = ""
    """Name and number of the process that has it, where that may be known."""


@dataclass(frozen=True)
class NetworkFacts:
    choice: Choice
    datagram_bytes: int = 0
    """What this host would propose at join; 0: nothing, as it cannot join."""

    routes: tuple[Route, ...] = ()
    socket: SocketFacts | None = None
    plain_trip: Trip | None = None
    segmented_trip: Trip | None = None
    taken_ports: tuple[TakenPort, ...] = ()
    ephemeral_ports: tuple[int, ...] = ()
    """Those of the planned ports that the kernel may hand to any program that asks for a free one."""

    free_port: int = 29_600
    """First of as many as are planned, all free and out of the kernel's way."""

    @property
    def spans_hosts(self) -> bool:
        return any(not route.is_this_host for route in self.routes)


@dataclass(frozen=True)
class Facts:
    plan: Plan
    system: SystemFacts
    clock: ClockFacts
    processor: ProcessorFacts | None = None
    """None, like the network, where the native module cannot be loaded."""

    network: NetworkFacts | None = None
