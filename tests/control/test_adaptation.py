"""The policies together: what an operation is called with, and what many of them teach."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.control.adaptation import Adaptation, PacketsSeen, StageSeen, Timing
from holdfast.control.early_timeout import StageEnd
from holdfast.control.hard_bound import HardBound
from holdfast.control.operation_limit import ROOM, TAIL, LimitMs

BYTES = 1 << 20
KEY = (7, BYTES)
NUM_RANKS = 4
ALL_ARRIVED = PacketsSeen(2000, 2000)


def adaptation(bound: HardBound | None = None, **limits: Any) -> Adaptation:
    measured = HardBound.measured([[20.0] * 40] * NUM_RANKS, BYTES, 10.0)
    options = {"least_wait_ratio": 0.01, "most_wait_ratio": 0.5, "wait_floor_ms": 0.1, **limits}
    return Adaptation(bound or measured, NUM_RANKS, **options)


def stage(took_ms: float, bound_ms: float, announced_ms: float | None = None, lost: int = 0) -> StageSeen:
    end: StageEnd = "bound" if took_ms >= bound_ms else "early" if lost else "complete"
    expected = dict.fromkeys((1, 2, 3), 1000)
    received = {**expected, 2: 1000 - lost}
    return StageSeen(end, min(took_ms, bound_ms), received, expected, [announced_ms] * 3)


def test_before_anything_is_known_a_stage_may_take_its_bound_and_announces_nothing() -> None:
    timing = adaptation().timing(KEY)
    assert timing.stage_ms == 20.0
    assert timing.early_wait_ms == (2.0, 2.0)
    assert timing.samples_ms == (0.0, 0.0)


def test_buckets_are_kept_apart_and_scaled() -> None:
    made = adaptation()
    made.observe(KEY, (stage(8.0, 20.0, 8.0), stage(12.0, 20.0, 12.0)), 0.0, ALL_ARRIVED)
    assert made.timing(KEY).samples_ms == (8.0, 12.0)
    assert made.timing(KEY).early_wait_ms[0] == pytest.approx(0.1 * (0.95 * 8 + 0.05 * 20), abs=0.2)
    assert made.timing((7, BYTES // 2)).samples_ms == (0.0, 0.0)
    assert made.timing((7, BYTES // 2)).stage_ms == pytest.approx(10.0, rel=0.01)


def test_a_network_that_stays_slow_is_measured_again_and_then_fits() -> None:
    made, noise = adaptation(), random.Random(3)
    hits = []
    for _ in range(600):
        bound_ms = made.timing(KEY).stage_ms
        took_ms = 45.0 * noise.uniform(0.9, 1.1)
        hits.append(took_ms >= bound_ms)
        made.observe(KEY, (stage(took_ms, bound_ms, min(took_ms, bound_ms)),) * 2, 0.0, ALL_ARRIVED)
        made.timing(KEY)
    # Twice the old bound was not enough at first, so it took more than one round.
    assert 45.0 < made.t_b_ms < 60.0
    assert sum(hits[-100:]) <= 20
    assert "measured again" in made.bound.reason


def test_a_given_bound_is_never_changed() -> None:
    made = adaptation(HardBound.given(10.0))
    for _ in range(400):
        made.observe(KEY, (stage(50.0, 5.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.t_b_ms == made.timing(KEY).stage_ms == 5.0


def test_a_machine_that_became_a_little_slower_gets_a_little_more_time() -> None:
    made, noise = adaptation(), random.Random(4)
    hits = []
    for _ in range(200):
        bound_ms = made.timing(KEY).stage_ms
        took_ms = 21.0 * noise.uniform(0.95, 1.05)
        hits.append(took_ms >= bound_ms)
        lost = max(0, int(3000 * (1 - bound_ms / took_ms)))
        made.observe(KEY, (stage(took_ms, bound_ms, lost=lost),) * 2, 0.0, ALL_ARRIVED)
    assert sum(hits[100:]) == 0
    assert 22.0 < made.t_b_ms < 24.0
    assert made.bound.t_b_ms == made.duty_bound_ms == 20.0
    assert "1.1 times what a stage usually takes" in made.explain()[0]


def test_a_bound_far_above_what_is_usual_comes_down_for_duty_too_but_not_below_the_floor() -> None:
    made = adaptation()
    for _ in range(400):
        made.observe(KEY, (stage(4.0, 20.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.t_b_ms == made.duty_bound_ms == made.timing(KEY).stage_ms == 10.0


def test_smaller_buckets_keep_their_time_when_the_largest_needs_less() -> None:
    made = adaptation(HardBound.measured([[100.0] * 40] * NUM_RANKS, BYTES, 10.0))
    for _ in range(400):
        made.observe(KEY, (stage(25.0, made.t_b_ms),) * 2, 0.0, ALL_ARRIVED)
    assert made.t_b_ms == pytest.approx(35.0)
    assert made.timing((7, BYTES // 4)).stage_ms == 25.0


def test_a_rank_that_is_too_late_for_a_narrow_bound_in_every_second_operation_gets_the_time_that_was_measured() -> None:
    made = adaptation(HardBound.measured([[100.0] * 40] * NUM_RANKS, BYTES, 5.0))
    for index in range(400):
        bound_ms = made.timing(KEY).stage_ms
        late = index % 2 == 0 and bound_ms < 50
        made.observe(
            KEY, (stage(bound_ms, bound_ms, lost=1000) if late else stage(10.0, bound_ms),) * 2, 0.0, ALL_ARRIVED
        )
    assert made.t_b_ms > 50


def test_a_rank_that_calls_late_does_not_move_its_bound() -> None:
    made = adaptation()
    for _ in range(50):
        bound_ms = made.timing(KEY).stage_ms
        over = dataclasses.replace(stage(bound_ms, bound_ms), before_call=True)
        made.observe(KEY, (over, stage(5.0, bound_ms)), 0.0, ALL_ARRIVED)
    assert made.t_b_ms == 20.0


def test_a_dead_rank_does_not_keep_the_bound_from_following_the_others() -> None:
    made = adaptation()
    for _ in range(50):
        bound_ms = made.timing(KEY).stage_ms
        without_3 = dataclasses.replace(
            stage(21.0, bound_ms), received_by_peer={1: 100, 2: 100, 3: 0}, dead_peers=frozenset({3})
        )
        made.observe(KEY, (without_3, without_3), 0.0, ALL_ARRIVED)
    assert made.t_b_ms > 20.5


def test_an_operation_of_which_nothing_is_known_changes_nothing() -> None:
    made = adaptation()
    forgotten = StageSeen("bound", 0.0, dict.fromkeys((1, 2, 3), 0), dict.fromkeys((1, 2, 3), 0), [None] * 3)
    for _ in range(50):
        made.observe(KEY, (forgotten, forgotten), 0.0, ALL_ARRIVED)
    assert made.t_b_ms == 20.0


def test_nobody_waits_longer_because_a_rank_is_away() -> None:
    made = adaptation()
    for _ in range(50):
        bound_ms = made.timing(KEY).stage_ms
        made.observe(KEY, (stage(bound_ms, bound_ms, lost=1000),) * 2, 0.0, ALL_ARRIVED)
    assert made.t_b_ms == 20.0


def test_credit_falls_with_incast_and_never_passes_its_limit() -> None:
    made = adaptation(most_credit=2)
    assert made.credit == 2
    for _ in range(30):
        lost = 600 if made.credit > 1 else 0
        made.observe(KEY, (stage(9.0, 20.0, lost=lost),) * 2, 0.0, PacketsSeen(2000, 2000 - lost))
    assert made.credit == 1


def test_what_came_too_late_is_no_incast() -> None:
    made = adaptation()
    for _ in range(100):
        made.observe(KEY, (stage(20.0, 20.0, lost=600),) * 2, 0.3, ALL_ARRIVED)
    assert made.credit == NUM_RANKS - 1


def test_packets_that_overtook_the_count_are_not_lost() -> None:
    assert PacketsSeen(100, 103).lost_ratio == 0.0
    assert PacketsSeen(0, 0).lost_ratio == 0.0
    assert PacketsSeen(100, 75).lost_ratio == 0.25


def test_everything_in_force_is_explained() -> None:
    made = adaptation(most_credit=2)
    made.observe(KEY, (stage(8.0, 20.0, 8.0), stage(12.0, 20.0, 12.0)), 0.0, ALL_ARRIVED)
    text = "\n".join(made.explain())
    for expected in ("t_B 20.0 ms", "x 10.0%", "contributions of the largest bucket", "credit 3 of 3", "at most 2"):
        assert expected in text, text


def test_contributions_behind_another_operation_may_take_until_both_of_its_stages_are_over() -> None:
    alone, behind = adaptation().timing((7, BYTES // 4)), adaptation().timing((7, BYTES // 4), BYTES)
    assert alone.contributions_ms == alone.stage_ms
    ahead_ms = behind.stage_ms - alone.stage_ms
    assert behind.contributions_ms == pytest.approx(2 * ahead_ms + alone.stage_ms)
    assert 2 * behind.stage_ms - behind.contributions_ms == pytest.approx(alone.stage_ms)


def test_an_operation_is_limited_once_its_usual_time_is_known() -> None:
    made = adaptation()
    assert made.timing(KEY).limit_ms == LimitMs()
    for _ in range(20):
        made.observe(KEY, (stage(15.0, 20.0, 15.0), stage(15.0, 20.0, 16.0)), 0.0, ALL_ARRIVED)
    assert made.timing(KEY).limit_ms.whole == pytest.approx(ROOM * 31.0)
    assert any(line.startswith("limit: both stages together last 34.1 ms") for line in made.explain())


def test_only_the_largest_bucket_alone_is_limited() -> None:
    made = adaptation()
    for _ in range(20):
        made.observe(KEY, (stage(15.0, 20.0, 15.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.timing(KEY, bytes_ahead=BYTES // 4).limit_ms == LimitMs()
    assert made.timing((7, BYTES // 2)).limit_ms == LimitMs()
    # What the ranks agree on now and then goes beside it, and is nothing.
    assert made.timing(KEY, bytes_ahead=224).limit_ms.whole > 0


def called_late(timing: Timing, late_ms: float) -> tuple[StageSeen, StageSeen]:
    """Rank 2 calls so much later than all others; every stage takes 15 ms once it can."""
    contributions_ms = late_ms + 15.0
    limit_ms = timing.limit_ms.contributions or timing.contributions_ms
    expected = dict.fromkeys((1, 2, 3), 1000)
    if contributions_ms <= min(limit_ms, timing.contributions_ms):
        first = StageSeen("complete", contributions_ms, expected, expected, [contributions_ms] * 3)
    else:
        end: StageEnd = "limit" if limit_ms < timing.contributions_ms else "bound"
        closed_ms = min(limit_ms, timing.contributions_ms)
        came = int(1000 * max(0.0, closed_ms - late_ms) / 15.0)
        first = StageSeen(end, closed_ms, {**expected, 2: came}, expected, [closed_ms] * 3)
    return first, StageSeen("complete", 15.0, expected, expected, [15.0] * 3)


@pytest.mark.parametrize("late_ms", [25.0, 40.0])
def test_a_rank_that_calls_late_from_now_on_is_waited_for_again(late_ms: float) -> None:
    made = adaptation(HardBound.measured([[60.0] * 40] * NUM_RANKS, BYTES, 10.0))
    for _ in range(100):
        made.observe(KEY, called_late(made.timing(KEY), 0.0), 0.0, ALL_ARRIVED)
    takes_part = []
    for _ in range(300):
        stages = called_late(made.timing(KEY), late_ms)
        takes_part.append(stages[0].end == "complete")
        made.observe(KEY, stages, 0.0, ALL_ARRIVED)
    assert not all(takes_part[:10])
    assert sum(takes_part[100:]) > 190


def test_what_waits_for_a_rank_that_is_away_says_nothing_about_the_usual_time() -> None:
    made = adaptation()
    for _ in range(20):
        made.observe(KEY, (stage(15.0, 20.0, 15.0),) * 2, 0.0, ALL_ARRIVED)
    before = made.timing(KEY).limit_ms
    without = stage(20.0, 20.0, 20.0, lost=1000)
    for first in (dataclasses.replace(without, end="limit"), *[dataclasses.replace(without, end="early")] * 20):
        made.observe(KEY, (first, dataclasses.replace(without, end="early")), 0.0, ALL_ARRIVED)
    assert made.timing(KEY).limit_ms == before
    # When it is back, all say once what it took without it.
    made.observe(KEY, (stage(15.0, 20.0, 20.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.timing(KEY).limit_ms == before


def silent(stages: Sequence[StageSeen]) -> tuple[StageSeen, StageSeen]:
    contributions, results = (dataclasses.replace(each, somebody_was_silent=True) for each in stages)
    return contributions, results


def run_freezing(
    made: Adaptation, freezes: Callable[[int], bool], num_operations: int, frozen_ms: float = 1e9
) -> list[float]:
    """Both stages of the others take 10 ms. As `reduce.transpose` does it, an operation announces what the one before the last
    took; so do the others, who saw the same."""
    announced, bounds_ms = [(0.0, 0.0)] * 2, []
    for operation in range(num_operations):
        timing = made.timing(KEY)
        announced.append(timing.samples_ms)
        bounds_ms.append(timing.stage_ms)
        told_ms = announced[-2]
        took_ms = frozen_ms if freezes(operation) else 10.0
        contributions, results = (stage(took_ms, timing.stage_ms, ms or None) for ms in told_ms)
        seen = (contributions, results)
        made.observe(KEY, silent(seen) if freezes(operation) else seen, 0.0, ALL_ARRIVED, announced_ms=told_ms)
    return bounds_ms


@pytest.mark.parametrize("period", [3, 8])
def test_however_often_a_host_freezes_the_usual_time_is_that_of_the_other_operations(period: int) -> None:
    """With eight hosts every eighth operation meets a freeze: as many as would pass for a long tail."""
    made = adaptation()
    run_freezing(made, lambda operation: operation % period == 0, 300)
    assert made.timing(KEY).limit_ms == LimitMs.of(ROOM * 20.0, 20.0)
    assert made.t_b_ms == pytest.approx(14.0), "1.4 usual stages, however long the frozen ones were"
    assert made.timing(KEY).early_wait_ms[0] == pytest.approx(1.0, abs=0.3), "of a t_C of 10 ms"
    assert "0 were slow" in "".join(made.explain())


def test_where_every_operation_has_a_silence_it_is_how_the_network_is() -> None:
    made = adaptation()
    bounds_ms = run_freezing(made, lambda _operation: True, 400, frozen_ms=45.0)
    assert bounds_ms[30] == 20.0
    assert made.t_b_ms > 40.0
    assert "measured again" in made.bound.reason


def test_what_the_warm_up_took_is_usual_from_the_first_operation_on() -> None:
    assert adaptation(operations_ms=[30.0] * 20).timing(KEY).limit_ms == LimitMs.of(ROOM * 30.0, 30.0)
    assert adaptation(operations_ms=[30.0] * 5).timing(KEY).limit_ms == LimitMs(), "too few of them say anything"


def test_what_the_warm_up_took_is_forgotten_when_there_is_enough_else() -> None:
    """In the warm-up other buckets went first, or ranks were late for their first steps."""
    made = adaptation(operations_ms=[60.0] * 20)
    run_freezing(made, lambda _operation: False, 30)
    assert made.timing(KEY).limit_ms == LimitMs.of(ROOM * 20.0, 20.0)


def test_what_the_limit_cuts_off_does_not_narrow_the_bound() -> None:
    made = adaptation(HardBound.measured([[60.0] * 40] * NUM_RANKS, BYTES, 10.0))
    for _ in range(300):
        cut = dataclasses.replace(stage(20.0, 60.0, 20.0, lost=200), end="limit")
        made.observe(KEY, (stage(20.0, 60.0, 20.0), cut), 0.0, ALL_ARRIVED)
    assert made.t_b_ms == 60.0
    # Nor is a rank that it did not wait for one that misses t_B, which would keep t_B from ever coming down.
    for _ in range(300):
        without = dataclasses.replace(stage(20.0, 60.0, 20.0, lost=1000), end="limit")
        made.observe(KEY, (without, stage(20.0, 60.0, 20.0)), 0.0, ALL_ARRIVED)
    for _ in range(400):
        made.observe(KEY, (stage(20.0, 60.0, 20.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.t_b_ms < 40.0


def test_a_stage_cut_at_the_limit_counts_as_long_as_it_would_have_taken() -> None:
    made = adaptation()
    cut = dataclasses.replace(stage(15.0, 20.0, 15.0, lost=200), end="limit")
    made.observe(KEY, (stage(10.0, 20.0, 10.0), cut), 0.0, ALL_ARRIVED)
    assert made.timing(KEY).samples_ms == (10.0, pytest.approx(15.0 / 0.8)), "by its slowest sender"
    cut = dataclasses.replace(stage(15.0, 20.0, 15.0, lost=999), end="limit")
    made.observe(KEY, (stage(10.0, 20.0, 10.0), cut), 0.0, ALL_ARRIVED)
    assert made.timing(KEY).samples_ms == (10.0, 20.0), "t_B would have cut it off"


def test_the_own_time_counts_for_the_operation_that_the_peers_speak_of() -> None:
    """Operations overlap with what they teach: one is called before the one before it is learnt from."""
    made = adaptation(HardBound.measured([[60.0] * 40] * NUM_RANKS, BYTES, 10.0))
    announced = [(0.0, 0.0), (0.0, 0.0)]
    for index in range(101):
        # Every eleventh operation is slow, for all; the peers speak of the one before the last.
        took_ms, of_peers_ms = (30.0 if number % 11 == 0 else 15.0 for number in (index, index - 2))
        made.observe(KEY, (stage(took_ms, 60.0, of_peers_ms),) * 2, 0.0, ALL_ARRIVED, announced_ms=announced[-2])
        announced.append((took_ms, took_ms))
    assert made.timing(KEY).limit_ms.whole == pytest.approx(TAIL * 30.0), "one in eleven is less than one in ten"


def test_a_rank_that_has_not_called_serves_its_shard_within_the_others_limit() -> None:
    made = adaptation(HardBound.measured([[60.0] * 40] * NUM_RANKS, BYTES, 10.0))
    assert made.duty_bound_ms == 60.0
    for _ in range(20):
        made.observe(KEY, (stage(40.0, 60.0, 40.0), stage(5.0, 60.0, 5.0)), 0.0, ALL_ARRIVED)
    limit = made.timing(KEY).limit_ms
    assert made.duty_bound_ms == limit.contributions < limit.whole
    made.timing(KEY, bytes_ahead=BYTES)  # behind another one there is none
    assert made.duty_bound_ms == pytest.approx(made.t_b_ms)


def test_where_ranks_are_grouped_there_is_no_limit() -> None:
    made = adaptation(limits_operations=False)
    for _ in range(20):
        made.observe(KEY, (stage(15.0, 20.0, 15.0),) * 2, 0.0, ALL_ARRIVED)
    assert made.timing(KEY).limit_ms == LimitMs()
    assert any(line.startswith("limit: none beside t_B: ranks are grouped") for line in made.explain())
