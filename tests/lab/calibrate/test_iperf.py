"""iperf3's words become intervals. Real flows, opened without loss and measured with it:
`tests/cli/test_calibrate.py`.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from holdfast.errors import LabError
from holdfast.lab.calibrate.iperf import Flow, Interval, card_overruns, parse, run_flows, socket_overruns
from holdfast.lab.cloud import Cloud
from holdfast.lab.host import INTERFACE
from lab.calibrate.instruments import needs_iperf3, recorded
from lab.lab_processes import needs_lab, wait_until


def test_a_udp_receivers_intervals_after_settling() -> None:
    output = recorded("iperf3-udp-receiver.json")
    assert [(part.packets, part.lost) for part in parse(output, settled_after_s=0.0)] == [(3900, 718), (3906, 38)]
    (settled,) = parse(output, settled_after_s=0.5)
    assert (settled.packets, settled.lost, settled.payload_bytes) == (3906, 38, 64 * (3906 - 38))
    assert settled.udp_bits_per_s == pytest.approx((3906 - 38) * (64 + 28) * 8 / 0.5)


def test_a_tcp_receivers_intervals() -> None:
    intervals = parse(recorded("iperf3-tcp-receiver.json"), settled_after_s=0.0)
    assert [part.payload_bytes for part in intervals] == [5961416, 5939696]  # without the 4 ms that were left over
    assert [part.packets for part in intervals] == [0, 0]
    flow = Flow(0, 1, intervals)
    assert 10e6 < flow.payload_bits_per_s < 100e6  # of a link of 100 Mbit/s that loses one packet in a hundred


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (recorded("iperf3-error.json"), "Connection refused"),
        ("iperf3: segmentation fault", "no JSON"),
        ('{"start": {}, "intervals": [], "end": {}}', "ended before all of them ran"),
    ],
)
def test_what_is_no_measurement_says_why(output: str, complaint: str) -> None:
    with pytest.raises(LabError, match=complaint):
        parse(output, settled_after_s=0.0)


def test_an_interval_counts_whole_packets() -> None:
    assert Interval(2.0, payload_bytes=1000, packets=12, lost=2).udp_bits_per_s == (1000 + 10 * 28) * 4


def test_what_a_hosts_kernel_had_no_room_for_is_found_in_its_tables() -> None:
    snmp = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n"
        "Udp: 36163 64 7 36219 5 3 2 0 0\n"
        "UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdpLite: 0 0 0 0 9\n"
    )
    assert socket_overruns(snmp) == 5 + 3
    dev = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier c\n"
        "    lo:       0       0    0    7    0     0          0         0        0       0    0    7    0     0       0 0\n"
        "  eth0: 4876712   20519    0    1    0     0          0         0  6190856   67304    0 2503    0     0       0 0\n"
    )
    assert card_overruns(dev) == 2503


@needs_lab
@needs_iperf3
def test_a_switch_that_was_held_up_is_noticed_by_its_hosts() -> None:
    """Held up until the sender's card, which is short here, is full: lost by the machine, not by the network."""
    with Cloud(2, "clean", bits_per_s=100e6) as cloud:
        cloud.hosts[0].run(lambda: shorten_queue(num_packets=10))
        hold_up = threading.Thread(target=lambda: hold_switch_up(cloud, after_datagrams=700))
        hold_up.start()
        (flow,) = run_flows(cloud, [(0, 1)], ["-u", "-l", "64", "-b", "500K"], seconds=0.5)
        hold_up.join()
    assert flow.overruns > 0


def shorten_queue(num_packets: int) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as routing:
        (card,) = routing.link_lookup(ifname=INTERFACE)
        routing.link("set", index=card, txqlen=num_packets)


def hold_switch_up(cloud: Cloud, after_datagrams: int) -> None:
    """For a fifth of a second, once the flow has long been running."""

    def num_sent() -> int:
        names, values = (line.split() for line in snmp.read_text().splitlines() if line.startswith("Udp:"))
        return int(values[names.index("OutDatagrams")])

    snmp = Path("/proc/thread-self/net/snmp")
    wait_until(lambda: cloud.hosts[0].run(num_sent) > after_datagrams, 30, "datagrams of iperf3")
    cloud.switch.process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    cloud.switch.process.send_signal(signal.SIGCONT)
