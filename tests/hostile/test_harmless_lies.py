"""A rank in the hands of an attacker, with the right key: it joins, does its work, and lies in one respect at a time.

Each of these lies is dropped by its name, and the job goes on as if nobody had said it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from infiltration import Attack, infiltrated

NUM_LIES = 300
HARMLESS = {
    "wrong_epoch": "foreign_epoch",
    "wrong_job": "foreign_job",
    "other_sender": "authentication",
    "far_ahead": "beyond_window",
    "far_behind": "late",
    "contribution_outside": "misplaced",
    "result_outside": "misplaced",
    "hole_outside": "misplaced",
    "hole_in_contribution": "malformed",
    "hole_in_exact": "malformed",
    "missing_in_exact": "malformed",
    "missing_too_many": "malformed",
    "total_huge": "oversized",
    "ack_unsent": "acknowledges_unsent",
    "ack_malformed": "malformed",
    "note_huge": "oversized",
    "note_contradicts": "malformed",
    "end_forged": None,  # believed, and yet nothing ends that must arrive
}


@pytest.fixture(scope="module")
def attack(rank_server: Any) -> Iterator[Attack]:
    with infiltrated(rank_server.start, exact_deadline_ms=20_000.0, waits_ms=20_000) as attack:
        yield attack
        for account in attack.results():
            assert account.wrong == []
            assert account.errors == []
            assert account.deaths == []


@pytest.mark.parametrize("kind", HARMLESS)
def test_a_lie_is_dropped_by_its_name_and_the_job_goes_on(attack: Attack, kind: str) -> None:
    cause = HARMLESS[kind]
    before = attack.job.tell()
    dropped = attack.lie(kind, NUM_LIES)
    for causes in dropped:
        # About an operation that has just ended, it comes late.
        assert set(causes) <= {cause, "late", "duplicate"}
        if cause is not None:
            assert causes.get(cause, 0) > 0
            assert causes[cause] + (causes.get("late", 0) if cause != "late" else 0) >= NUM_LIES
    for now, then in zip(attack.job.tell(), before, strict=True):
        assert now["operations"] > then["operations"]
        assert (now["wrong"], now["errors"]) == (then["wrong"], then["errors"])
