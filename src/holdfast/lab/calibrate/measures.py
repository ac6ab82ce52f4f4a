"""Which promise of a profile is measured how.

| promise | measured by | enough when |
|---|---|---|
| `rtt_ms` | ping between two ordinary hosts, nothing else on the network | the median's error is a few per cent |
| `loss_ratio` | iperf3, small UDP packets between all hosts at once, far below any link's rate | a tenth of the promise is 2.5 standard errors |
| `bandwidth_ratio` | iperf3, one UDP flow as fast as the card takes it, between two ordinary hosts | many bursts of cross traffic have come and gone |
| `slowest_bandwidth_ratio` | the same from every host in its turn to the next one; the least counts | |
| `allreduce_p99_to_p50` | Gloo, 2,048 gradients, begun by all ranks in time | 20 operations lie beyond the P99, in different episodes |
| `longest_silence_ms` | ping to the host that the profile singles out | a long freeze has come by |

Shares of a line rate count whole IP packets, as the switch and the card do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.lab.calibrate import finding, iperf
from holdfast.lab.calibrate.finding import Finding
from holdfast.lab.calibrate.gloo import Operation, allreduce
from holdfast.lab.calibrate.ping import ping
from holdfast.lab.cloud import Cloud
from holdfast.lab.priority import WORKER_PRIORITY
from holdfast.lab.profile import Profile

# Below what the switch carries without being late, so that what is lost was meant to be.
_LOSS_PACKETS_PER_S = 40_000
_LOSS_PAYLOAD_BYTES = 64
_MAX_LOSS_FLOWS = 12
# With a standard error of a twenty-fifth, a tenth is two and a half of them.
_LOSSES_WANTED = 625
_MIN_LOSS_S, _MAX_LOSS_S = 6.0, 20.0
# A machine that wakes a rank this late also holds it up in the middle of the operation, so that one is left out; where
# it happens to more than a few, the others are not to be trusted either.
_WOKE_LATE_MS = 0.5
_MAX_LEFT_OUT = 0.02


@dataclass(frozen=True)
class Effort:
    """How much is measured of each figure."""

    rtt_s: int = 4
    loss_share: float = 1.0
    """Of the datagrams that the tolerance asks for."""
    bandwidth_s: float = 4.0
    turn_s: float = 1.5
    num_operations: int = 2000
    silence_s: int = 30


FULL = Effort()
QUICK = Effort(rtt_s=1, loss_share=0.1, bandwidth_s=1.5, turn_s=1.0, num_operations=200, silence_s=6)


@dataclass(frozen=True)
class Measure:
    instrument: str
    tolerance: float
    """Largest deviation from the promise, as a share of it."""
    take: Callable[[Cloud, float, Effort], Finding]
    """By cloud, promise and effort."""


def ordinary_hosts(profile: Profile, num_hosts: int, seed: int) -> tuple[int, int]:
    """Two that the profile does not single out, if there are so many."""
    different = profile.different_hosts(num_hosts, seed)
    first, second, *_ = sorted(range(num_hosts), key=lambda host: host in different)
    return first, second


def neighbours(num_hosts: int, num_shifts: int) -> list[tuple[int, int]]:
    """Every host with so many after it: no link has more flows than another."""
    shifts = range(1, min(num_shifts, num_hosts - 1) + 1)
    return [(host, (host + shift) % num_hosts) for shift in shifts for host in range(num_hosts)]


def loss_seconds(promise: float, effort: Effort) -> float:
    """Until the promised loss has happened often enough; where none is promised, the least time."""
    packets = _LOSSES_WANTED / promise if promise > 0 else 0.0
    seconds = min(max(packets / _LOSS_PACKETS_PER_S, _MIN_LOSS_S), _MAX_LOSS_S)
    return max(seconds * effort.loss_share, 2 * iperf.INTERVAL_S)


def _rtt(cloud: Cloud, _promise: float, effort: Effort) -> Finding:
    pair = ordinary_hosts(cloud.profile, len(cloud.hosts), cloud.seed)
    return finding.median(ping(cloud, *pair, effort.rtt_s).rtt_ms)


def _loss(cloud: Cloud, promise: float, effort: Effort) -> Finding:
    pairs = neighbours(len(cloud.hosts), max(1, _MAX_LOSS_FLOWS // len(cloud.hosts)))
    bits_per_s = _LOSS_PACKETS_PER_S / len(pairs) * _LOSS_PAYLOAD_BYTES * 8
    options = ["-u", "-l", str(_LOSS_PAYLOAD_BYTES), "-b", f"{bits_per_s:.0f}", *iperf.buffers()]
    flows = iperf.run_flows(cloud, pairs, options, loss_seconds(promise, effort))
    found = finding.loss([interval for flow in flows for interval in flow.intervals])
    return dataclasses.replace(found, disturbance=_overrun(flows))


def _bandwidth(cloud: Cloud, _promise: float, effort: Effort) -> Finding:
    return _flow_share(cloud, ordinary_hosts(cloud.profile, len(cloud.hosts), cloud.seed), effort.bandwidth_s)


def _slowest_bandwidth(cloud: Cloud, _promise: float, effort: Effort) -> Finding:
    turns = [_flow_share(cloud, pair, effort.turn_s) for pair in neighbours(len(cloud.hosts), 1)]
    return min(turns, key=lambda share: share.value)


def _flow_share(cloud: Cloud, pair: tuple[int, int], seconds: float) -> Finding:
    """Without a rate iperf3 sends as fast as its socket takes it, which is as fast as the card sends.

    It sleeps while the card is busy, so it can have real-time priority: otherwise a busy machine is measured.
    """
    options = ["-u", "-l", str(iperf.UDP_PAYLOAD_BYTES), "-b", "0", *iperf.buffers()]
    (flow,) = iperf.run_flows(cloud, [pair], options, seconds, sender_priority=WORKER_PRIORITY)
    found = finding.mean([interval.udp_bits_per_s / cloud.bits_per_s for interval in flow.intervals])
    return dataclasses.replace(found, disturbance=_overrun([flow]))


def _overrun(flows: Sequence[iperf.Flow]) -> float:
    """What a host had no room for was not lost in the network: one such datagram is too much."""
    overruns = sum(flow.overruns for flow in flows)
    return 1.0 + overruns if overruns else 0.0


def _allreduce_tail(cloud: Cloud, _promise: float, effort: Effort) -> Finding:
    return tail(allreduce(cloud, effort.num_operations))


def tail(operations: Sequence[Operation]) -> Finding:
    """Of those that all ranks began in time: that is decided before their network is."""
    begun_in_time = [operation.took_ms for operation in operations if operation.woke_late_ms <= _WOKE_LATE_MS]
    left_out = 1 - len(begun_in_time) / len(operations)
    found = finding.p99_to_p50(begun_in_time or [operation.took_ms for operation in operations])
    return dataclasses.replace(found, disturbance=left_out / _MAX_LEFT_OUT)


def _longest_silence(cloud: Cloud, _promise: float, effort: Effort) -> Finding:
    sender, _ = ordinary_hosts(cloud.profile, len(cloud.hosts), cloud.seed)
    different = cloud.profile.different_hosts(len(cloud.hosts), cloud.seed)
    target = next((host for host in different if host != sender), (sender + 1) % len(cloud.hosts))
    echoes = ping(cloud, sender, target, effort.silence_s)
    return Finding(echoes.longest_silence_ms, None, len(echoes.rtt_ms))


MEASURES: Mapping[str, Measure] = {
    "rtt_ms": Measure("ping", 0.2, _rtt),
    "loss_ratio": Measure("iperf3", 0.1, _loss),
    "bandwidth_ratio": Measure("iperf3", 0.2, _bandwidth),
    "slowest_bandwidth_ratio": Measure("iperf3", 0.2, _slowest_bandwidth),
    "allreduce_p99_to_p50": Measure("Gloo", 0.2, _allreduce_tail),
    "longest_silence_ms": Measure("ping", 0.2, _longest_silence),
}
"""By the names of `Promise`."""
