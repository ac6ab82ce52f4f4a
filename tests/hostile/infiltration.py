"""An attacker in a rank's seat: two honest ranks, and a third one that has the key and lies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attacker import Attacker
from honest_job import BOARD, Account, Plan, Watched, honest_rank
from torch.distributed import PrefixStore

NUM_HONEST = 2
HOSTILE = 2
WITHOUT_END = 1_000_000
EARLY_CAP = 32 << 20


@dataclass
class Attack:
    attacker: Attacker
    job: Watched

    def lie(self, kind: str, count: int) -> list[dict[str, int]]:
        """What each honest rank dropped while it was lied to."""
        before = self.job.tell()
        assert self.attacker.order("lie", kind, count, 30_000)["told"]
        after = self.job.tell()
        for counts in after:
            assert counts["early_bytes"] <= EARLY_CAP
            assert counts["open_operations"] <= 64 + 2
        return [
            {cause: n - then["drops"][cause] for cause, n in now["drops"].items() if n != then["drops"][cause]}
            for now, then in zip(after, before, strict=True)
        ]

    def results(self, margin: int = 20) -> list[Account]:
        self.job.stop(margin)
        return self.job.results()


@contextlib.contextmanager
def infiltrated(
    start: Any,
    *,
    exact_deadline_ms: float = 3_000.0,
    pause_at: int | None = None,
    takes_part_in: int = WITHOUT_END,
    waits_ms: int = 200,
    only_heartbeats: bool = False,
) -> Iterator[Attack]:
    """A job with an attacker's seat, which takes part in so many operations and waits so long in an exact one.

    The job may pause before one of them.
    """
    settings = {"early_bytes_cap": EARLY_CAP, "deadline_ms": 200.0, "exact_deadline_ms": exact_deadline_ms}
    plan = Plan(NUM_HONEST + 1, num_operations=pause_at, settings=settings)
    with Attacker() as attacker, start(honest_rank, NUM_HONEST, plan, timeout_s=110) as ranks:
        attacker.take_seat(
            PrefixStore(BOARD, ranks.store),
            rank=HOSTILE,
            num_ranks=NUM_HONEST + 1,
            config=plan.config(),
            total=plan.total,
            num_operations=takes_part_in,
            exact_deadline_ms=waits_ms,
            only_heartbeats=only_heartbeats,
        )
        job = Watched(ranks, NUM_HONEST)
        job.wait_joined()
        if pause_at is not None:
            job.wait_for_operation(pause_at)
        yield Attack(attacker, job)


def assert_blame_is_right(accounts: list[Account]) -> None:
    """Errors name the liar. One that waited in vain for an honest rank names that one, which knows why.

    It failed and names the liar, or the liar has held it up for so long that the others were done without it.
    """
    for account in accounts:
        for operation, _, peers in account.errors:
            for peer in set(peers) - {HOSTILE}:
                own = [names for number, _, names in accounts[peer].errors if number == operation]
                assert own in ([(HOSTILE,)], [(peer,)]), (
                    f"rank {peer} was blamed for operation {operation}, and says {own}"
                )
