"""Full links: what a flow's share of its link is, and when the switch has carried enough."""

from __future__ import annotations

import pytest

from holdfast.lab.calibrate.carrying import Carried, carry
from holdfast.lab.cloud import Cloud
from lab.lab_processes import needs_lab


@pytest.mark.parametrize(
    ("shares", "late_p999_ms", "kept"),
    [((0.9, 0.99), 1.99, True), ((0.89, 0.99), 0.1, False), ((0.95, 0.99), 2.0, False)],
)
def test_every_flow_must_get_its_share_in_time(shares: tuple[float, ...], late_p999_ms: float, kept: bool) -> None:
    carried = Carried("tcp", len(shares), 1e6, shares, 0.1, 0.2, late_p999_ms)
    assert carried.kept is kept
    assert carried.least_share == shares[0]
    assert carried.mean_share == pytest.approx(sum(shares) / 2)


@needs_lab
def test_hosts_fill_their_links_and_no_more(cloud: Cloud) -> None:
    carried = carry(cloud, "udp", seconds=0.5)
    assert (carried.protocol, carried.num_hosts, carried.bits_per_s) == ("udp", 2, cloud.bits_per_s)
    assert len(carried.shares) == 2
    assert 0 < carried.least_share <= carried.mean_share <= 1.02  # the card lets a burst of 20 kB go ahead
    assert carried.late_p50_ms <= carried.late_p999_ms
    assert 0 <= carried.to_json()["stolen_ratio"] < 1
