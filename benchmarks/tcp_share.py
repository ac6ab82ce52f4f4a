"""Does Holdfast share a link with TCP, or does one of them starve?

python benchmarks/tcp_share.py                                   4 hosts, clean, cubic and then bbr, 10 s each
python benchmarks/tcp_share.py --profile shared-1.5 --seconds 20 --peer holdfast-bf16

One bulk flow (iperf3) runs from host 0 to host 1 while all hosts do one all-reduce after the other. The two meet on host
0's way out and on host 1's way in. Each is also measured alone, on the same network. Neither starves if each keeps at
least a quarter of what it has alone, in either direction. TCP's rate is what its receiver got, Holdfast's is what its
operations delivered, both as the IP packets that carry it. Needs root, as the lab does, and iperf3.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from holdfast.cli.signals import ended_by_signal
from holdfast.config import resolve
from holdfast.lab import privilege
from holdfast.lab.bench.row import Measured, wire_bytes_per_rank
from holdfast.lab.bench.session import Session
from holdfast.lab.calibrate import iperf
from holdfast.lab.calibrate.programs import require
from holdfast.lab.cloud import Cloud
from holdfast.lab.host import MTU_BYTES
from holdfast.lab.peer import Peer, peer_named
from holdfast.lab.priority import WORKER_PRIORITY
from holdfast.lab.profile import load_profile
from holdfast.lab.stolen import ProcessorTime
from holdfast.lab.tcp_settings import USUAL_RTO_MIN_US

LEAST_RATIO = 0.25
SENDER, RECEIVER = 0, 1
CONGESTION_CONTROLS = ("cubic", "bbr")
# The bound is measured in 20 operations.
WARMUP_OPERATIONS = 24
SETTLING_S = 3.0
# The flow's end is heard of a little late.
LAST_S = 0.5
# Operations between two looks at the clock: a pause of some milliseconds every half second.
SERIES = 8
TCP_PACKET_TO_PAYLOAD = MTU_BYTES / iperf.TCP_PAYLOAD_BYTES
# Holdfast's own header has 48 bytes, the tag of an encrypted datagram 16.
HOLDFAST_PACKET_TO_PAYLOAD = MTU_BYTES / (MTU_BYTES - iperf.IP_UDP_HEADER_BYTES - 48 - 16)


@dataclass(frozen=True)
class HoldfastSide:
    """What Holdfast got in one span of time."""

    out_bits_per_s: float
    """From the host that also sends by TCP."""
    in_bits_per_s: float
    """To the host that also receives by TCP."""
    p50_ms: float
    delivered_ratio: float


def holdfast_side(operations: Sequence[Sequence[Measured]], bytes_per_rank: int, seconds: float) -> HoldfastSide:
    """Of what each operation, told by all ranks, should have carried over the two links, what came."""
    sent = received = 0.0
    for ranks in operations:
        others = len(ranks) - 1
        not_sent = sum(one.missing_by_rank.get(SENDER, 0.0) for rank, one in enumerate(ranks) if rank != SENDER)
        sent += 1 - not_sent / others
        received += 1 - sum(ranks[RECEIVER].missing_by_rank.values()) / others
    bits = bytes_per_rank * 8 * HOLDFAST_PACKET_TO_PAYLOAD
    times_ms = [(max(one.ended_ns for one in ranks) - min(one.began_ns for one in ranks)) / 1e6 for ranks in operations]
    delivered = [one.delivered_ratio for ranks in operations for one in ranks]
    return HoldfastSide(
        sent * bits / seconds, received * bits / seconds, median(times_ms), sum(delivered) / len(delivered)
    )


def run_series(session: Session, peer: Peer, end: threading.Event, limit_s: float) -> list[tuple[Measured, ...]]:
    """Operations back to back until told to end; by operation, what each rank measured."""
    give_up = time.monotonic() + limit_s
    operations: list[tuple[Measured, ...]] = []
    while not end.is_set() and time.monotonic() < give_up:
        operations += zip(*session.series(peer, SERIES), strict=True)
    return operations


def holdfast_alone(session: Session, peer: Peer, bytes_per_rank: int, seconds: float) -> HoldfastSide:
    began = time.monotonic()
    operations = run_series(session, peer, threading.Event(), seconds)
    return holdfast_side(operations, bytes_per_rank, time.monotonic() - began)


def run_tcp(cloud: Cloud, seconds: float) -> float:
    """Bits per second of its packets, over the last so many seconds of a flow."""
    (flow,) = iperf.run_flows(
        cloud, [(SENDER, RECEIVER)], [], SETTLING_S + seconds + LAST_S, sender_priority=WORKER_PRIORITY
    )
    last = flow.intervals[-round(seconds / iperf.INTERVAL_S) :]
    payload_bits = sum(interval.payload_bytes for interval in last) * 8
    return payload_bits / sum(interval.seconds for interval in last) * TCP_PACKET_TO_PAYLOAD


def both(cloud: Cloud, session: Session, peer: Peer, bytes_per_rank: int, seconds: float) -> tuple[float, HoldfastSide]:
    """The flow is started from this thread, because programs die with the thread that started them."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        operations = pool.submit(run_series, session, peer, end, 10 * seconds + 120)
        try:
            tcp = run_tcp(cloud, seconds)
            until_ns = time.monotonic_ns() - int(LAST_S * 1e9)
        finally:
            end.set()
    since_ns = until_ns - int(seconds * 1e9)
    counted = [ranks for ranks in operations.result() if since_ns <= ranks[0].ended_ns < until_ns]
    return tcp, holdfast_side(counted, bytes_per_rank, seconds)


def compare(cloud: Cloud, session: Session, peer: Peer, num_bytes: int, seconds: float) -> bool:
    bytes_per_rank = wire_bytes_per_rank(peer, len(cloud.hosts), num_bytes)
    session.set_size(num_bytes)
    session.series(peer, WARMUP_OPERATIONS)
    alone = holdfast_alone(session, peer, bytes_per_rank, seconds)
    print(f"{peer.name} alone: {_side(alone, cloud)}", flush=True)
    good = True
    for congestion_control in CONGESTION_CONTROLS:
        cloud.set_tcp(congestion_control=congestion_control, rto_min_us=USUAL_RTO_MIN_US)
        tcp_alone = run_tcp(cloud, seconds)
        print(f"{congestion_control} alone: {_rate(tcp_alone, cloud)}", flush=True)
        cloud.switch.reset()
        before = ProcessorTime.now()
        tcp, holdfast = both(cloud, session, peer, bytes_per_rank, seconds)
        stolen, report = ProcessorTime.now() - before, cloud.switch.report()
        kept = {
            f"{congestion_control}": tcp / tcp_alone,
            "Holdfast out": holdfast.out_bits_per_s / alone.out_bits_per_s,
            "Holdfast in": holdfast.in_bits_per_s / alone.in_bits_per_s,
        }
        fair = all(ratio >= LEAST_RATIO for ratio in kept.values())
        good = good and fair
        print(
            f"together: {congestion_control} {_rate(tcp, cloud)}; {peer.name} {_side(holdfast, cloud)}\n"
            f"  of what each has alone (at least {LEAST_RATIO:.0%}): "
            f"{', '.join(f'{name} {ratio:.0%}' for name, ratio in kept.items())}: {'kept' if fair else 'NOT KEPT'}\n"
            f"  the switch was {report.lateness_p999_us / 1e3:.2f} ms late at p99.9, lost {sum(report.losses.values())} "
            f"packets; {stolen.stolen_ratio:.1%} of the processor time was stolen",
            flush=True,
        )
    return good


def _rate(bits_per_s: float, cloud: Cloud) -> str:
    return f"{bits_per_s / 1e6:.0f} Mbit/s ({bits_per_s / cloud.bits_per_s:.0%} of the link)"


def _side(side: HoldfastSide, cloud: Cloud) -> str:
    return (
        f"out {_rate(side.out_bits_per_s, cloud)}, in {_rate(side.in_bits_per_s, cloud)}, p50 {side.p50_ms:.1f} ms, "
        f"{side.delivered_ratio:.2%} delivered"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--profile", default="clean", help="network of the lab; default clean")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement; default 10")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of float32 in an operation; default 1 MiB")
    parser.add_argument("--peer", default="holdfast", choices=["holdfast", "holdfast-bf16", "holdfast-exact"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    require("iperf3")
    privilege.ensure()
    peer = peer_named(options.peer)
    profile = load_profile(options.profile)
    with (
        ended_by_signal(),
        Cloud(options.hosts, profile, seed=options.seed) as cloud,
        Session([peer], options.hosts, resolve({}).config, cloud) as session,
    ):
        print(
            f"{options.hosts} hosts, {profile.name}, links of {cloud.bits_per_s / 1e6:g} Mbit/s, {options.seconds:g} s each"
        )
        good = compare(cloud, session, peer, options.bytes, options.seconds)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
