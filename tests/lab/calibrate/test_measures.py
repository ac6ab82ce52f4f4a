"""Every promise has a measure, and each looks at the right hosts for long enough."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from holdfast.lab.calibrate.gloo import Operation
from holdfast.lab.calibrate.measures import FULL, MEASURES, QUICK, loss_seconds, neighbours, ordinary_hosts, tail
from holdfast.lab.profile import Promise, load_profile


def test_every_figure_that_can_be_promised_is_measured() -> None:
    assert set(MEASURES) == {field.name for field in dataclasses.fields(Promise)}
    assert {measure.instrument for measure in MEASURES.values()} == {"ping", "iperf3", "Gloo"}


def test_loss_is_held_to_a_tenth_and_the_rest_to_a_fifth() -> None:
    tolerances = {name: measure.tolerance for name, measure in MEASURES.items()}
    assert tolerances.pop("loss_ratio") == 0.1
    assert set(tolerances.values()) == {0.2}


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_hosts_are_not_the_one_that_is_singled_out(seed: int) -> None:
    profile = load_profile("straggler")
    pair = ordinary_hosts(profile, 4, seed)
    assert len(set(pair)) == 2
    assert not set(pair) & set(profile.different_hosts(4, seed))
    assert set(ordinary_hosts(profile, 2, seed)) == {0, 1}


@pytest.mark.parametrize(("num_hosts", "num_shifts", "num_flows"), [(2, 6, 2), (4, 3, 12), (4, 1, 4), (8, 1, 8)])
def test_neighbours_load_every_link_alike(num_hosts: int, num_shifts: int, num_flows: int) -> None:
    pairs = neighbours(num_hosts, num_shifts)
    assert len(pairs) == len(set(pairs)) == num_flows
    assert all(sender != receiver for sender, receiver in pairs)
    for end in (0, 1):
        assert set(Counter(pair[end] for pair in pairs).values()) == {num_flows // num_hosts}


def test_loss_is_measured_until_its_tolerance_means_something() -> None:
    assert loss_seconds(0.001, FULL) > 15  # 40,000 packets a second: 625 losses, known to a twenty-fifth
    assert loss_seconds(0.01, FULL) == loss_seconds(0.0, FULL) == 6
    assert loss_seconds(1e-6, FULL) == 20
    assert loss_seconds(0.01, QUICK) == 1


def test_operations_that_the_machine_began_late_say_nothing_about_the_network() -> None:
    in_time = [Operation(4.0 if number % 50 else 6.0, 0.1) for number in range(1000)]
    late = [Operation(40.0, 3.0)] * 15
    found = tail(in_time + late)
    assert (found.value, found.num_samples) == (1.5, 1000)
    assert found.disturbance < 1
    assert tail(in_time + 2 * late).disturbance > 1


def test_a_machine_that_is_never_in_time_is_measured_all_the_same_and_not_believed() -> None:
    found = tail([Operation(4.0, 3.0)] * 100)
    assert found.value == 1.0
    assert found.disturbance > 1
