"""What an attacker with the right key can spoil, what he can make the others hold, and what he gets for silence.

Honest results are right or carry an error that names him, and memory stays under its caps.
"""

from __future__ import annotations

from typing import Any

import pytest
from infiltration import HOSTILE, assert_blame_is_right, infiltrated

# Nothing an insider says may cost more: the early cap, the notes' cap (64 MB), and what an allocator keeps.
MOST_GROWTH = (32 + 64 + 16) << 20
# Before a bounded operation: without him it ends by its deadline, and the next one has been opened by him.
PAUSE_AT = 11

# ---------------------------------------------------------------------------------------------------- lies that harm


@pytest.mark.parametrize("kind", ["total_other", "format_other", "layout_other"])
def test_an_operation_it_contradicts_fails_with_its_name(start_ranks: Any, kind: str) -> None:
    with infiltrated(start_ranks) as under:
        # One at a time, until one comes while its operation is still open.
        lies = (under.lie(kind, count=1) for _ in range(20))
        assert any(causes.get("mismatch", 0) > 0 for dropped in lies for causes in dropped)
        accounts = under.results()
        assert all(account.wrong == [] for account in accounts)
        mismatches = [peers for account in accounts for _, name, peers in account.errors if name == "BucketMismatch"]
        assert set(mismatches) == {(HOSTILE,)}
        assert_blame_is_right(accounts)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("operations_without_end", "beyond_window"),
        ("early_without_end", "early_over_cap"),
        pytest.param("bitmaps_without_end", "early_over_cap", marks=pytest.mark.slow),
        pytest.param("note_never_finished", "oversized", marks=pytest.mark.slow),
        pytest.param("note_unread", "oversized", marks=pytest.mark.slow),
    ],
)
def test_what_has_no_end_meets_a_cap(start_ranks: Any, kind: str, cause: str) -> None:
    with infiltrated(start_ranks, pause_at=PAUSE_AT, takes_part_in=PAUSE_AT) as under:
        before = under.job.resident_bytes()
        assert all(causes.get(cause, 0) > 0 for causes in under.lie(kind, count=1_500))
        held = under.job.resident_bytes()
        assert all(causes.get(cause, 0) > 0 for causes in under.lie(kind, count=500))
        after = under.job.resident_bytes()
        assert max(now - then for now, then in zip(held, before, strict=True)) < MOST_GROWTH
        assert max(now - then for now, then in zip(after, before, strict=True)) < MOST_GROWTH
        # What it opened before its time is spoilt when the job comes to it, and names it; everything else is right.
        accounts = under.results(margin=6)
        assert all(account.wrong == [] for account in accounts)
        assert_blame_is_right(accounts)


# ---------------------------------------------------------------------------------------------------- silence


def test_one_that_only_heartbeats_is_named_as_the_one_that_did_not_deliver(start_ranks: Any) -> None:
    with infiltrated(start_ranks, takes_part_in=0, only_heartbeats=True, exact_deadline_ms=1_000.0) as under:
        accounts = under.results(margin=4)
        for account in accounts:
            assert account.wrong == []
            exact = [error for error in account.errors if error[0] % 2 == 0]
            assert len(exact) == (account.operations + 1) // 2
            assert {(name, peers) for _, name, peers in exact} == {("DeadlineExceeded", (HOSTILE,))}
            assert account.errors == exact, "bounded operations end by their deadline, without an error"
            assert set(account.late) == {HOSTILE}
            assert account.late[HOSTILE] == account.incomplete == account.operations // 2
            assert account.deaths == []


def test_an_insider_is_answered_by_acks_and_no_more_than_it_sends(start_ranks: Any) -> None:
    with infiltrated(start_ranks, takes_part_in=0, only_heartbeats=True, exact_deadline_ms=1_000.0) as under:
        under.job.stop(margin=4)  # from here on the honest ranks have nothing to say of their own
        before = under.attacker.order("status")
        under.lie("far_ahead", count=500)
        after = under.attacker.order("status")
        said, heard = (
            {kind: number - before[side].get(kind, 0) for kind, number in after[side].items()}
            for side in ("said", "heard")
        )
        assert said["data"] == 2 * 500
        assert {kind for kind, number in heard.items() if number} <= {"ack", "ping"}
        assert heard["ack"] <= sum(said.values())
        under.job.results()
