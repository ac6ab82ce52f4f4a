"""What a lost packet costs a transpose, a server and a ring, on one network in virtual time."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest

from holdfast import _native
from holdfast.lab.conditions import Conditions, Episodes, Path, Port, native_conditions
from holdfast.sim.topologies import PACKET_ELEMENTS, Floats, PatternName, Reduced, least_ms, reduce_by

BITS_PER_S = 250e6
AMPLE_MS = 1e6
PATTERNS: tuple[PatternName, ...] = ("transpose", "server", "ring")


def network(
    num_ranks: int, *, queue_bytes: int = 1 << 30, loss_ratio: float = 0.0, cross_traffic_share: float = 0.0
) -> _native.Conditions:
    port = Port(
        BITS_PER_S,
        BITS_PER_S,
        queue_bytes,
        cross_traffic_share=cross_traffic_share,
        cross_traffic=Episodes(on_ms=4.0, off_ms=6.0),
    )
    path = Path(loss_ratio=loss_ratio, delay_ms=0.1)
    paths = {(a, b): path for a in range(num_ranks) for b in range(num_ranks) if a != b}
    return native_conditions(Conditions((port,) * num_ranks, paths).to_json())


def gradients_of(num_ranks: int, seed: int, num_elements: int = 60_001) -> Floats:
    return np.random.default_rng(seed).standard_normal((num_ranks, num_elements), dtype=np.float32)


def errors(
    pattern: PatternName, conditions: _native.Conditions, num_seeds: int, server_load: float | None = None
) -> list[float]:
    found = []
    for seed in range(num_seeds):
        gradients = gradients_of(len(conditions.ports), seed)
        reduced = reduce_by(pattern, gradients, conditions, seed=seed, deadline_ms=AMPLE_MS, server_load=server_load)
        found.append(reduced.relative_error(gradients))
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("num_ranks", "num_elements"), [(2, 1_000), (5, 40_003), (5, 3)])
def test_without_loss_every_rank_has_the_mean(pattern: PatternName, num_ranks: int, num_elements: int) -> None:
    gradients = gradients_of(num_ranks, 1, num_elements)
    reduced = reduce_by(pattern, gradients, network(num_ranks), seed=1, deadline_ms=AMPLE_MS)
    np.testing.assert_allclose(reduced.results, np.broadcast_to(gradients.mean(0), gradients.shape), atol=1e-5)
    assert reduced.lost_ratio == 0
    least = least_ms(pattern, num_ranks, num_elements, BITS_PER_S)
    delays = 0.1 * 2 * (num_ranks - 1)
    headers_of_short_packets = least_ms(pattern, num_ranks, PACKET_ELEMENTS * num_ranks, BITS_PER_S)
    assert 0.99 * least < reduced.elapsed_ms < least + delays + 2 * headers_of_short_packets


def test_independent_loss_costs_what_can_be_worked_out_and_a_ring_the_most() -> None:
    num_ranks, loss, num_seeds = 8, 0.01, 12
    found = {pattern: errors(pattern, network(num_ranks, loss_ratio=loss), num_seeds) for pattern in PATTERNS}
    others = (num_ranks - 1) / num_ranks
    direct = loss * others
    along = mean((1 - loss) ** hops for hops in range(num_ranks))
    expected = {"transpose": direct + others * loss * (1 - direct), "ring": 1 - along**2}
    expected["server"] = expected["transpose"]
    for pattern in PATTERNS:
        error_of_mean = np.std(found[pattern], ddof=1) / num_seeds**0.5
        assert abs(mean(found[pattern]) - expected[pattern]) < 4 * error_of_mean, pattern
    assert mean(found["ring"]) > 3 * max(mean(found["server"]), mean(found["transpose"]))


def test_shallow_queues_alone_cost_only_the_server_whose_workers_all_send_at_once() -> None:
    conditions = network(8, queue_bytes=32 << 10)
    assert max(errors("transpose", conditions, 2) + errors("ring", conditions, 2)) < 1e-10
    assert max(errors("server", conditions, 2, server_load=1.0)) < 1e-10
    # One line's worth of seven arrives, and the server's own; the queue holds a little more.
    assert 0.7 < mean(errors("server", conditions, 2)) < 6 / 8


def test_in_a_shared_network_a_transpose_is_below_half_of_the_server_and_below_the_ring() -> None:
    conditions = network(8, queue_bytes=32 << 10, cross_traffic_share=0.5)
    found = {pattern: mean(errors(pattern, conditions, 4)) for pattern in PATTERNS}
    assert found["transpose"] <= found["server"] / 2
    assert found["transpose"] < found["ring"]


def cut_off(pattern: PatternName, share: float) -> Reduced:
    least = least_ms(pattern, 4, 60_001, BITS_PER_S)
    return reduce_by(pattern, gradients_of(4, 3), network(4), seed=3, deadline_ms=share * least)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_at_the_deadline_everybody_has_what_it_has(pattern: PatternName) -> None:
    wanted = gradients_of(4, 3).mean(0)
    early, late = cut_off(pattern, 0.3), cut_off(pattern, 0.75)
    assert not early.results.any()  # contributions are still under way
    there = late.results != 0
    assert 0.2 < there.mean() < 0.9
    np.testing.assert_allclose(late.results[there], np.broadcast_to(wanted, late.results.shape)[there], atol=1e-5)
    assert late.elapsed_ms <= 0.75 * least_ms(pattern, 4, 60_001, BITS_PER_S)


def test_the_same_seed_is_the_same_operation() -> None:
    conditions, gradients = network(4, queue_bytes=32 << 10, cross_traffic_share=0.5), gradients_of(4, 0)
    first, again, other = (
        reduce_by("ring", gradients, conditions, seed=seed, deadline_ms=AMPLE_MS) for seed in (5, 5, 6)
    )
    assert np.array_equal(first.results, again.results)
    assert not np.array_equal(first.results, other.results)


def test_a_packet_stays_within_the_fabric() -> None:
    fabric = _native.Fabric(num_ports=2, seed=1, now_ns=0)
    for sender, receiver in ((0, 2), (2, 0), (1, 1)):
        with pytest.raises(ValueError, match="from one port"):
            fabric.admit(0, sender, receiver, 0, 1_500)
