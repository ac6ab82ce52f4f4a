"""iperf3 as an instrument: flows between hosts, as their receivers saw them.

- Receivers write JSON, by intervals. Senders write text, because they must be heard while they run, and often, because
  iperf3 keeps what it has to say until an interval ends.
- iperf3 opens a UDP flow with one datagram that it never sends again, and gives up if that is lost. So flows are opened
  while the network loses nothing, and what receivers saw until all flows ran does not count.
- A datagram that waits for a busy processor until its socket is full, or for a switch that was held up until its card is
  full, is not one that the network lost, but iperf3 cannot tell. So receivers run at real-time priority, and what the
  hosts' own kernels had no room for is counted (`overruns`): such a measurement is to be repeated.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import LabError
from holdfast.lab.calibrate.programs import Program, Programs
from holdfast.lab.cloud import Cloud
from holdfast.lab.conditions import Conditions
from holdfast.lab.host import INTERFACE, MTU_BYTES
from holdfast.lab.priority import WORKER_PRIORITY

INTERVAL_S = 0.5
"""Of a receiver's reports."""
IP_UDP_HEADER_BYTES = 20 + 8
# With the timestamps that Linux puts into every segment.
IP_TCP_HEADER_BYTES = 20 + 20 + 12
UDP_PAYLOAD_BYTES = MTU_BYTES - IP_UDP_HEADER_BYTES
TCP_PAYLOAD_BYTES = MTU_BYTES - IP_TCP_HEADER_BYTES
# Above the senders: a flow whose receiver waits for its sender's time slice would overrun the socket.
RECEIVER_PRIORITY = WORKER_PRIORITY + 1
_FIRST_PORT = 5201
# How much longer than asked a flow runs, so that enough is left when all of them run.
_SETTLING_S, _SETTLING_S_PER_FLOW = 1.0, 0.1
_TALKATIVE = ("-i", "0.1", "--forceflush")
# Tens of milliseconds for a receiver that has to wait. The sender gets the same, and must not overrun its own card,
# which holds 1.5 MB; the kernel doubles what it is asked for.
_WANTED_BUFFER_BYTES = 512 << 10
_START_LIMIT_S = 30.0
_GRACE_S = 20.0
_LISTENING = "0A"
# Eight counters of what a device received, then eight of what it sent: bytes, packets, errors, dropped.
_SENT_DROPPED = 8 + 3
_OPENING = "flows are being opened"


class FlowsApart(LabError):
    """The machine was too busy to start the flows together; another attempt may succeed."""


@dataclass(frozen=True)
class Interval:
    """What one receiver got in about half a second."""

    seconds: float
    payload_bytes: int
    packets: int = 0
    """Of UDP, lost ones included."""
    lost: int = 0

    @property
    def udp_bits_per_s(self) -> float:
        """Of whole IP packets, as a link carries them."""
        arrived = self.packets - self.lost
        return (self.payload_bytes + arrived * IP_UDP_HEADER_BYTES) * 8 / self.seconds


@dataclass(frozen=True)
class Flow:
    sender: int
    receiver: int
    intervals: tuple[Interval, ...]
    overruns: int = 0
    """Packets for which its two hosts, whatever the flow, had no room."""

    @property
    def payload_bits_per_s(self) -> float:
        seconds = sum(interval.seconds for interval in self.intervals)
        return sum(interval.payload_bytes for interval in self.intervals) * 8 / seconds


def run_flows(
    cloud: Cloud, pairs: Sequence[tuple[int, int]], options: Sequence[str], seconds: float,
    *, sender_priority: int | None = None,
) -> list[Flow]:  # fmt: skip
    """One flow per (sender, receiver), all at once, with these options of iperf3's client, for about so long."""
    flow_s = math.ceil(seconds + _SETTLING_S + _SETTLING_S_PER_FLOW * len(pairs))  # iperf3 takes whole seconds
    targets = [(sender, receiver, ["-p", str(_FIRST_PORT + index)]) for index, (sender, receiver) in enumerate(pairs)]
    with Programs(cloud) as programs:
        receivers = [
            programs.start(
                receiver,
                ["iperf3", "-s", "-1", "-J", "-i", str(INTERVAL_S), "-B", cloud.hosts[receiver].address, *port],
                priority=RECEIVER_PRIORITY,
            )
            for _, receiver, port in targets
        ]
        programs.wait(lambda: _all_listen(cloud, pairs), _START_LIMIT_S, "iperf3 listening in every host")
        cloud.change(_OPENING, _without_loss)
        try:
            senders = [
                programs.start(
                    sender,
                    ["iperf3", "-c", cloud.hosts[receiver].address, *port, "-t", str(flow_s), *_TALKATIVE, *options],
                    priority=sender_priority,
                )
                for sender, receiver, port in targets
            ]  # fmt: skip
            began = _wait_for_flows(programs, senders)
        finally:
            cloud.undo(_OPENING)
        all_ran = time.monotonic()
        overruns_before = [_overruns(cloud, pair) for pair in pairs]
        programs.finish([*senders, *receivers], flow_s + _GRACE_S)
    # The receiver's clock starts with the flow; half a second more, because the lab hears late.
    return [
        Flow(*pair, parse(program.output, all_ran - began_at + INTERVAL_S), _overruns(cloud, pair) - before)
        for pair, program, began_at, before in zip(pairs, receivers, began, overruns_before, strict=True)
    ]


def buffers() -> list[str]:
    """As an option: as large as is useful and allowed."""
    limits = [int(Path(f"/proc/sys/net/core/{name}mem_max").read_text()) for name in "rw"]
    return ["-w", str(min(_WANTED_BUFFER_BYTES, *limits))]


def parse(output: str, settled_after_s: float) -> tuple[Interval, ...]:
    """What a receiver's JSON says of the time after its flow had settled."""
    try:
        document = json.loads(output)
    except json.JSONDecodeError as error:
        raise LabError(f"iperf3 wrote no JSON: {output[-200:]!r}") from error
    if "error" in document:
        raise LabError(f"iperf3: {document['error']}")
    intervals = tuple(
        Interval(part["seconds"], part["bytes"], part.get("packets", 0), part.get("lost_packets", 0))
        for part in (interval["sum"] for interval in document["intervals"])
        # The last one is what was left over, and too short to be compared with the others.
        if part["start"] >= settled_after_s - INTERVAL_S / 4 and part["seconds"] > INTERVAL_S / 2
    )
    if not intervals:
        raise FlowsApart("iperf3's flows had ended before all of them ran", what_to_try="a less busy machine")
    return intervals


def _all_listen(cloud: Cloud, pairs: Sequence[tuple[int, int]]) -> bool:
    wanted = {(receiver, _FIRST_PORT + index) for index, (_, receiver) in enumerate(pairs)}
    return wanted <= {(host, port) for host in {receiver for receiver, _ in wanted} for port in _listening(cloud, host)}


def _listening(cloud: Cloud, host: int) -> list[int]:
    table = cloud.hosts[host].run(Path("/proc/thread-self/net/tcp").read_text)
    sockets = (line.split() for line in table.splitlines()[1:])
    return [int(fields[1].rpartition(":")[2], 16) for fields in sockets if fields[3] == _LISTENING]


def _overruns(cloud: Cloud, hosts: Sequence[int]) -> int:
    network = Path("/proc/thread-self/net")
    tables = [
        cloud.hosts[host].run(lambda: [(network / name).read_text() for name in ("snmp", "dev")]) for host in hosts
    ]
    return sum(socket_overruns(snmp) + card_overruns(dev) for snmp, dev in tables)


def socket_overruns(snmp: str) -> int:
    """UDP datagrams that found a full buffer, from the kernel's table of a network's protocols."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Udp:"))
    return sum(int(values[names.index(name)]) for name in ("RcvbufErrors", "SndbufErrors"))


def card_overruns(dev: str) -> int:
    """Packets that a host wanted to send and its card had no room for, from the kernel's table of devices."""
    (counters,) = (line.partition(":")[2].split() for line in dev.splitlines() if line.strip().startswith(INTERFACE))
    return int(counters[_SENT_DROPPED])


def _without_loss(conditions: Conditions) -> Conditions:
    return conditions.with_paths(lambda path: dataclasses.replace(path, loss_ratio=0.0, burst_loss_ratio=0.0))


def _wait_for_flows(programs: Programs, senders: Sequence[Program]) -> list[float]:
    """Until every sender said that it is connected; when each was heard to say so."""
    heard: dict[Program, float] = {}

    def all_connected() -> bool:
        for sender in senders:
            if sender not in heard and "connected to" in sender.output:
                heard[sender] = time.monotonic()
        return len(heard) == len(senders)

    programs.wait(all_connected, _START_LIMIT_S, "all flows of iperf3")
    return [heard[sender] for sender in senders]
