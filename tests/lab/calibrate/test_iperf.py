"""iperf3's words become intervals. Real flows, opened without loss and measured with it:
`tests/cli/test_calibrate.py`.
"""

from __future__ import annotations

import pytest

from holdfast.errors import LabError
from holdfast.lab.calibrate.iperf import Flow, Interval, parse, parse_overruns
from lab.calibrate.instruments import recorded


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


def test_what_a_hosts_kernel_had_no_room_for_is_found_in_its_table() -> None:
    table = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n"
        "Udp: 36163 64 7 36219 5 0 2 0 0\n"
        "UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdpLite: 0 0 0 0 9\n"
    )
    assert parse_overruns(table) == 5
