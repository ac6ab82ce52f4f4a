"""Somebody without a key floods a running job, kind by kind: the job goes on, and every datagram is dropped by its name.

All traffic between the ranks passes through the attacker's relays, so that its replays are of real datagrams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from accounting import OUTSIDER_CAUSES, at_rest, outsider_drops, unaccounted
from attacker import Attacker
from honest_job import BOARD, Plan, Watched, honest_rank
from torch.distributed import PrefixStore

NUM_RANKS = 3
COUNT = 12_000
PER_SECOND = 60_000  # quick, yet slow enough that each kind is mostly read rather than dropped by the kernel
AT_LINE_RATE = 0
NUM_AT_LINE_RATE = 200_000
FLAT_BYTES = 16 << 20
# What a kind may be dropped as; where there are several it depends on which bits were hit, or on how old it is.
ANY = set(OUTSIDER_CAUSES)
CAUSES = {
    "random": ANY,
    "short": {"truncated"},
    "long": {"authentication"},
    "version": {"version"},
    "malformed": {"malformed"},
    "job": {"foreign_job"},
    "epoch": {"foreign_epoch"},
    "sender": {"unknown_sender"},
    "phase": {"key_phase"},
    "forged_data": {"authentication"},
    "forged_end": {"authentication"},
    "forged_ack": {"authentication"},
    "forged_bye": {"authentication"},
    "replay": {"replay", "too_old"},
    "garbled": ANY,
    # The same number may have been used towards this rank; and a rank's own datagram comes from an unknown sender.
    "redirected": {"authentication", "replay", "too_old", "unknown_sender"},
}


@dataclass
class Attack:
    attacker: Attacker
    job: Watched
    sent: dict[int, int]

    def passed(self) -> dict[int, int]:
        return {int(rank): number for rank, number in self.attacker.order("passed").items()}


@pytest.fixture(scope="module")
def attack(rank_server: Any) -> Iterator[Attack]:
    with Attacker() as attacker:
        relays = attacker.open_relays(NUM_RANKS)
        # Without segmentation the kernel counts every datagram it drops, so that the sums come out to the last one.
        plan = Plan(NUM_RANKS, relays=relays, settings={"segmentation": False})
        with rank_server.start(honest_rank, NUM_RANKS, plan, timeout_s=110) as ranks:
            attacker.learn_job(PrefixStore(BOARD, ranks.store), range(NUM_RANKS), NUM_RANKS, relays)
            job = Watched(ranks, NUM_RANKS)
            job.wait_joined()
            attack = Attack(attacker, job, dict.fromkeys(range(NUM_RANKS), 0))
            yield attack
            finish(attack)


def finish(attack: Attack) -> None:
    """After all floods: everything is accounted for to the last datagram, and the job was right all along."""
    attack.job.stop()
    told, passed = at_rest(attack.job.tell, attack.passed)
    assert unaccounted(told, attack.sent, passed) == [0] * NUM_RANKS
    for counts in told:
        assert counts["open_operations"] == 0
        assert counts["early_bytes"] == 0
    for account in attack.job.results():
        assert account.wrong == []
        assert account.errors == []
        assert account.deaths == []
        assert account.operations > 20


@pytest.mark.parametrize("kind", CAUSES)
def test_a_flood_is_dropped_by_cause_and_never_answered(attack: Attack, kind: str) -> None:
    before = attack.job.tell()
    flood = attack.attacker.order("flood", COUNT, 7, PER_SECOND, kind)
    assert flood["answers"] == 0
    sent = {int(rank): sum(kinds.values()) for rank, kinds in flood["sent"].items()}
    assert sum(sent.values()) == COUNT
    for rank, number in sent.items():
        attack.sent[rank] += number

    give_up_at = time.monotonic() + 20
    while True:
        after = attack.job.tell()
        gained = [gain(after[rank], before[rank]) for rank in range(NUM_RANKS)]
        lost = [after[rank]["kernel_drops"] - before[rank]["kernel_drops"] for rank in range(NUM_RANKS)]
        if all(sum(gained[rank].values()) + lost[rank] >= sent[rank] for rank in range(NUM_RANKS)):
            break
        assert time.monotonic() < give_up_at, f"sent {sent}, dropped {gained}, by the kernel {lost}"
    for causes in gained:
        assert set(causes) <= CAUSES[kind]
        assert causes, "the kernel dropped them all: nothing was tested"
    assert all(now["operations"] > then["operations"] for now, then in zip(after, before, strict=True))


def test_all_kinds_at_once_and_at_line_rate_neither_stop_the_job_nor_grow_it(attack: Attack) -> None:
    before, resident = attack.job.tell(), [attack.job.resident_bytes()]
    flood = attack.attacker.order(
        *("flood", NUM_AT_LINE_RATE, 7, AT_LINE_RATE, *CAUSES),
        meanwhile=lambda: resident.append(attack.job.resident_bytes()),
    )
    for rank, kinds in flood["sent"].items():
        assert set(kinds) == set(CAUSES)
        attack.sent[int(rank)] += sum(kinds.values())
    assert sum(sum(kinds.values()) for kinds in flood["sent"].values()) == NUM_AT_LINE_RATE
    assert flood["answers"] == 0
    after = attack.job.tell()
    resident.append(attack.job.resident_bytes())
    assert max(max(sizes) - sizes[0] for sizes in zip(*resident, strict=True)) < FLAT_BYTES
    for now, then in zip(after, before, strict=True):
        assert now["operations"] > then["operations"]
        assert gain(now, then), "the kernel dropped them all: nothing was tested"


def gain(after: dict[str, Any], before: dict[str, Any]) -> dict[str, int]:
    old = outsider_drops(before)
    return {cause: n - old.get(cause, 0) for cause, n in outsider_drops(after).items() if n != old.get(cause, 0)}
