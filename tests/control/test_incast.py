"""Credit: lowered where fewer senders lose less, left alone where they do not; model ports show where it settles."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.incast import FIRST_PAUSE, SUSPICION, TEST_OPERATIONS, Incast

PACKETS = 650  # 1 MiB on four ranks: three quarters of it in datagrams of 1,200 bytes
Port = Callable[[int, random.Random], float]


def nothing_lost(credit: int, chance: random.Random) -> float:
    return 0.0


def cliff(knee: int) -> Port:
    """A shallow port: 18 to 20 % lost as soon as more than `knee` send at once."""
    return lambda credit, chance: chance.uniform(0.18, 0.20) if credit > knee else 0.0


def slope(knee: int, top: int) -> Port:
    """Loss grows with every sender beyond the knee, up to 20 % with all."""
    return lambda credit, chance: 0.20 * max(0, credit - knee) / max(1, top - knee)


def random_loss(ratio: float, packets: int = PACKETS) -> Port:
    def port(credit: int, chance: random.Random) -> float:
        return sum(chance.random() < ratio for _ in range(packets)) / packets

    return port


def bursts(how_often: float, depth: float) -> Port:
    """Now and then an operation loses a lot, whoever sends."""
    return lambda credit, chance: 2 * depth * chance.random() if chance.random() < how_often else 0.0


def both(one: Port, other: Port) -> Port:
    return lambda credit, chance: 1 - (1 - one(credit, chance)) * (1 - other(credit, chance))


def run(
    incast: Incast, port: Port, num_operations: int, seed: int = 0, packets: int = PACKETS
) -> list[tuple[int, float]]:
    """(credit, loss) of each operation."""
    chance = random.Random(seed)
    history = []
    for _ in range(num_operations):
        credit = incast.credit
        loss = port(credit, chance)
        history.append((credit, loss))
        incast.observe(loss, packets, hit_bound=False)
    return history


def mean_credit(history: list[tuple[int, float]]) -> float:
    return sum(credit for credit, _ in history) / len(history)


def mean_loss(history: list[tuple[int, float]]) -> float:
    return sum(loss for _, loss in history) / len(history)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8, 64])
def test_a_clean_network_is_given_every_sender_at_once(num_ranks: int) -> None:
    incast = Incast(num_ranks)
    assert {credit for credit, _ in run(incast, nothing_lost, 1000)} == {num_ranks - 1}
    assert incast.explain() == (
        f"credit {num_ranks - 1} of {num_ranks - 1} senders at once: nothing is lost that fewer would save"
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_ranks", [4, 8])
def test_a_shallow_port_settles_at_what_it_holds(num_ranks: int, seed: int) -> None:
    incast = Incast(num_ranks)
    history = run(incast, cliff(2), 1000, seed)
    assert mean_loss(history) < 0.01
    assert mean_loss(history[100:]) < 0.002
    settled = [credit for credit, _ in history[100:]]
    assert settled.count(2) > 0.99 * len(settled)


@pytest.mark.parametrize("knee", range(1, 7))
@pytest.mark.parametrize("make", [lambda knee: cliff(knee), lambda knee: slope(knee, 7)])
def test_every_knee_is_found(knee: int, make: Callable[[int], Port]) -> None:
    incast = Incast(8)
    history = run(incast, make(knee), 1500)
    settled = [credit for credit, _ in history[-300:]]
    assert settled.count(knee) > 0.9 * len(settled)
    assert mean_loss(history) < 0.01


def test_trials_above_the_ceiling_become_rarer() -> None:
    history = run(Incast(4), cliff(2), 3200)
    lost_at = [index for index, (_, loss) in enumerate(history) if loss > 0]
    gaps = [later - earlier for earlier, later in pairwise(lost_at) if later - earlier > 50]
    assert len(gaps) >= 4
    assert gaps == [FIRST_PAUSE * 2**doubled + 1 for doubled in range(len(gaps))]


@pytest.mark.parametrize("packets", [7, 20, 100, PACKETS])
@pytest.mark.parametrize("num_ranks", [4, 8])
@pytest.mark.parametrize("ratio", [0.01, 0.05])
def test_loss_that_does_not_depend_on_the_credit_does_not_lower_it(ratio: float, num_ranks: int, packets: int) -> None:
    history = []
    for seed in range(3):
        incast = Incast(num_ranks)
        history += run(incast, random_loss(ratio, packets), 3000, seed, packets)
    assert mean_credit(history) > 0.9 * (num_ranks - 1)


@pytest.mark.parametrize(("how_often", "depth"), [(0.01, 0.25), (0.02, 0.5), (0.05, 0.2), (0.1, 0.1), (0.3, 0.03)])
@pytest.mark.parametrize("num_ranks", [4, 8])
def test_bursts_that_come_and_go_do_not_lower_it(num_ranks: int, how_often: float, depth: float) -> None:
    history = []
    for seed in range(4):
        history += run(Incast(num_ranks), bursts(how_often, depth), 2000, seed)
    assert mean_credit(history) > 0.95 * (num_ranks - 1)


@pytest.mark.parametrize("num_ranks", [4, 8])
def test_incast_is_told_from_bursts(num_ranks: int) -> None:
    incast = Incast(num_ranks)
    run(incast, bursts(0.05, 0.2), 1000)
    history = run(incast, both(cliff(2), bursts(0.05, 0.2)), 1000)
    settled = [credit for credit, _ in history[-500:]]
    assert settled.count(2) > 0.85 * len(settled)
    assert mean_loss(history) < 0.01 + 0.02


def test_random_loss_is_recognised_and_said() -> None:
    incast = Incast(4)
    run(incast, random_loss(0.05), 60)
    assert incast.credit == 3
    assert incast.background_loss == pytest.approx(0.05, rel=0.3)
    assert "is lost even with one, so fewer would save nothing" in incast.explain()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_ranks", [4, 8])
def test_a_shallow_port_on_a_lossy_network_is_told_from_the_loss(num_ranks: int, seed: int) -> None:
    incast = Incast(num_ranks)
    history = run(incast, both(cliff(2), random_loss(0.01)), 1500, seed)
    settled = [credit for credit, _ in history[-500:]]
    assert settled.count(2) > 0.9 * len(settled)
    assert mean_loss(history) < 0.02


@pytest.mark.parametrize("num_ranks", [4, 8])
def test_a_port_that_becomes_shallow_later_is_noticed_on_a_lossy_network_too(num_ranks: int) -> None:
    incast = Incast(num_ranks)
    run(incast, random_loss(0.01), 500)
    history = run(incast, both(cliff(2), random_loss(0.01)), 1000)
    assert mean_loss(history) < 0.02
    assert [credit for credit, _ in history[-100:]].count(2) > 90


@pytest.mark.parametrize("num_ranks", [4, 8])
def test_credit_returns_when_the_port_has_room_again(num_ranks: int) -> None:
    incast = Incast(num_ranks)
    run(incast, cliff(2), 150)
    assert incast.credit == 2
    history = run(incast, nothing_lost, 2 * FIRST_PAUSE + 20 * num_ranks)
    assert history[-1][0] == num_ranks - 1


def test_background_that_has_gone_hides_nothing() -> None:
    incast = Incast(8)
    run(incast, random_loss(0.05), 300)
    run(incast, nothing_lost, 600)
    assert incast.background_loss < 0.001
    history = run(incast, lambda credit, chance: 0.05 if credit > 3 else 0.0, 400)
    assert history[-1][0] == 3


def test_small_losses_add_up() -> None:
    incast = Incast(4)
    history = run(incast, lambda credit, chance: 0.03 if credit > 1 else 0.0, 35)
    assert history[28][0] == 3
    assert history[34][0] == 1


def test_less_than_two_percent_is_left_alone() -> None:
    assert mean_credit(run(Incast(4), lambda credit, chance: 0.019 * (credit > 1), 1000)) == 3


def test_the_test_at_one_takes_its_time() -> None:
    incast = Incast(4)
    history = run(incast, cliff(2), 4 + SUSPICION + TEST_OPERATIONS)
    test = history[SUSPICION : SUSPICION + TEST_OPERATIONS]
    assert [credit for credit, _ in test] == [1] * TEST_OPERATIONS


def test_a_port_that_neighbours_fill_for_two_operations_is_no_incast() -> None:
    incast = Incast(4)
    for _ in range(100):
        run(incast, lambda credit, chance: 0.2, SUSPICION - 1)
        run(incast, nothing_lost, 2)
        assert incast.credit == 3


def test_a_test_with_small_operations_takes_more_of_them() -> None:
    incast = Incast(4)
    run(incast, lambda credit, chance: 0.3, SUSPICION, packets=20)
    history = run(incast, nothing_lost, 101, packets=20)
    assert {credit for credit, _ in history} == {1}
    assert incast.credit == 2


def test_loss_with_one_sender_is_background_and_leaves_one() -> None:
    incast = Incast(4)
    run(incast, cliff(1), 60)
    assert incast.credit == 1
    history = run(incast, lambda credit, chance: 0.05 + 0.2 * (credit > 1), 40)
    assert {credit for credit, _ in history} == {1}
    assert incast.background_loss == pytest.approx(0.05)


@given(
    st.integers(1, 16),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1000), st.booleans()), max_size=400),
)
def test_credit_stays_between_one_and_all_others(num_ranks: int, operations: list[tuple[float, int, bool]]) -> None:
    incast = Incast(num_ranks)
    for loss, packets, hit in operations:
        assert 1 <= incast.observe(loss, packets, hit_bound=hit) <= max(1, num_ranks - 1)
        assert incast.explain()


def test_fewer_senders_that_lose_more_are_not_insisted_upon() -> None:
    """Each sender alone overruns the port that all of them share without harm."""
    incast = Incast(4)
    history = run(incast, lambda credit, chance: 0.03 if credit == 3 else 0.2, 200)
    assert sum(credit < 3 for credit, _ in history) <= 4
    assert "fewer would lose more" in incast.explain()


def test_the_bound_alone_is_no_sign_of_incast() -> None:
    incast = Incast(4)
    for _ in range(200):
        assert incast.observe(0.0, PACKETS, hit_bound=True) == 3


def test_the_bound_makes_loss_weigh_more() -> None:
    def operations_until_fewer(hit_bound: bool) -> int:
        incast = Incast(4)
        return next(i for i in range(1000) if incast.observe(0.03, PACKETS, hit_bound=hit_bound) < 3)

    assert operations_until_fewer(True) < operations_until_fewer(False)
