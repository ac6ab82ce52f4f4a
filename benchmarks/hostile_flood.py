"""Fire millions of hostile datagrams at a running job, and account for every one of them.

python benchmarks/hostile_flood.py                          ten million datagrams at line rate, some minutes
python benchmarks/hostile_flood.py --datagrams 200000       a quick look
python benchmarks/hostile_flood.py --kinds forged_end       only small ones, so more of them a second
python benchmarks/hostile_flood.py --json                   the same figures for a program

Three ranks run exact sums and bounded means in turn and check every element, while somebody without a key floods all of
them over loopback with every kind of datagram that he can make: noise, truncated and oversized ones, foreign jobs, forged
data, ends, acks and goodbyes, replays of real datagrams and garbled copies of them. `make native-tests` builds him.

Ends with code 1 unless results were right, nobody was declared dead, every datagram is accounted for, memory stayed
flat, and nobody answered.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The attacker's driver and the job that checks itself belong to the tests.
TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "hostile")]

from accounting import at_rest, outsider_drops, unaccounted  # noqa: E402
from attacker import Attacker  # noqa: E402
from honest_job import BOARD, Account, Plan, Watched, honest_rank  # noqa: E402
from rank_processes import RankServer  # noqa: E402
from torch.distributed import PrefixStore  # noqa: E402

NUM_RANKS = 3
KINDS = ("random", "short", "long", "version", "malformed", "job", "epoch", "sender", "phase", "forged_data")
KINDS += ("forged_end", "forged_ack", "forged_bye", "replay", "garbled", "redirected")
QUIET_S = 3.0  # how long the pace is measured before and after
LIMIT_S = 540.0
FLAT_BYTES = 16 << 20


def run(num_datagrams: int, kinds: list[str], seed: int, per_second: int, segmentation: bool) -> dict[str, Any]:
    with Attacker() as attacker:
        relays = attacker.open_relays(NUM_RANKS)
        plan = Plan(NUM_RANKS, total=30_000, relays=relays, settings={"segmentation": segmentation})
        with RankServer().start(honest_rank, NUM_RANKS, plan, timeout_s=LIMIT_S + 60) as ranks:
            attacker.learn_job(PrefixStore(BOARD, ranks.store), range(NUM_RANKS), NUM_RANKS, relays)
            job = Watched(ranks, NUM_RANKS)
            job.wait_joined()
            time.sleep(QUIET_S)
            before = job.resident_bytes()
            during: list[list[int]] = []
            began = time.monotonic()
            flood = attacker.order(
                *("flood", num_datagrams, seed, per_second, *kinds),
                limit_s=LIMIT_S,
                meanwhile=lambda: during.append(job.resident_bytes()),
            )
            ended = time.monotonic()
            time.sleep(QUIET_S)
            job.stop()
            told, passed = at_rest(job.tell, lambda: {int(k): v for k, v in attacker.order("passed").items()})
            after = job.resident_bytes()
            accounts = job.results()
    sent = {int(rank): sum(kinds.values()) for rank, kinds in flood["sent"].items()}
    return {
        "datagrams": num_datagrams,
        "flood_s": flood["seconds"],
        "answers": flood["answers"],
        "sent": total(flood["sent"].values()),
        "dropped": total(outsider_drops(counts) for counts in told),
        "kernel_drops": [counts["kernel_drops"] for counts in told],
        "honest_lost": [passed[rank] - sum(counts["received"].values()) for rank, counts in enumerate(told)],
        "unaccounted": unaccounted(told, sent, passed),
        "resident_bytes": {"before": before, "peak": [max(column) for column in zip(*during, after, strict=True)]}
        | {"after": after},
        "operations": [account.operations for account in accounts],
        "wrong": [account.wrong for account in accounts],
        "incomplete": [account.incomplete for account in accounts],
        "errors": [account.errors for account in accounts],
        "declared_dead": [account.deaths for account in accounts],
        "operations_per_s": paces(accounts[0], began, ended),
        "segmentation": segmentation,
    }


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(one) for one in counts), Counter()))


def paces(account: Account, began: float, ended: float) -> dict[str, float]:
    """Operations a second before, during and after the flood."""
    first, last = account.ended_at[0], account.ended_at[-1]
    spans = {"before": (first, began), "during": (began, ended), "after": (ended, last)}
    return {
        name: sum(begin <= at < end for at in account.ended_at) / max(end - begin, 1e-9)
        for name, (begin, end) in spans.items()
    }


def verdicts(figures: dict[str, Any]) -> dict[str, bool]:
    resident = figures["resident_bytes"]
    growth = max(peak - before for peak, before in zip(resident["peak"], resident["before"], strict=True))
    # With segmentation the kernel counts a whole batch of honest datagrams as one drop.
    lost = figures["honest_lost"] if figures["segmentation"] else [0] * NUM_RANKS
    return {
        "every datagram is accounted for": all(
            0 <= rest <= most for rest, most in zip(figures["unaccounted"], lost, strict=True)
        ),
        "all results are right": not any(figures["wrong"]) and not any(figures["errors"]),
        "nobody was declared dead": not any(figures["declared_dead"]),
        "nobody answered": figures["answers"] == 0,
        "the job went on meanwhile": figures["operations_per_s"]["during"] > 0,
        "most were dropped for a reason": sum(figures["dropped"].values()) > figures["datagrams"] / 2,
        "memory stayed flat": growth < FLAT_BYTES,
    }


def show(figures: dict[str, Any]) -> None:
    rate = figures["datagrams"] / figures["flood_s"]
    print(f"{figures['datagrams']:,} hostile datagrams in {figures['flood_s']:.1f} s ({rate:,.0f} a second)")
    for title, counts in (("sent by kind", figures["sent"]), ("dropped by cause", figures["dropped"])):
        print(f"\n{title}")
        for name, number in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"  {name:16} {number:>12,}")
        print(f"  {'sum':16} {sum(counts.values()):>12,}")
    print("\nby rank           " + "".join(f"{rank:>14}" for rank in range(NUM_RANKS)))
    for name in ("kernel_drops", "honest_lost", "unaccounted", "operations", "incomplete"):
        print(f"  {name:16}" + "".join(f"{number:>14,}" for number in figures[name]))
    for name in ("wrong", "errors", "declared_dead"):
        print(f"  {name:16}" + "".join(f"{len(found):>14,}" for found in figures[name]))
    for when, sizes in figures["resident_bytes"].items():
        print(f"  {'MiB ' + when:16}" + "".join(f"{size / 2**20:>14.1f}" for size in sizes))
    print(
        "\noperations a second: "
        + ", ".join(f"{pace:.0f} {when}" for when, pace in figures["operations_per_s"].items())
    )
    for name in ("wrong", "errors"):
        for rank, found in enumerate(figures[name]):
            for one in found[:3]:
                print(f"rank {rank}, {name}: {one}")
    print()
    for claim, holds in verdicts(figures).items():
        print(f"{'yes' if holds else 'NO':>4}  {claim}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datagrams", type=int, default=10_000_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=int, default=0, help="0: as fast as the kernel takes them")
    parser.add_argument("--segmentation", action="store_true", help="let honest ranks use GSO and GRO")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments.datagrams, arguments.kinds, arguments.seed, arguments.per_second, arguments.segmentation)
    if arguments.json:
        print(json.dumps({**figures, "verdicts": verdicts(figures)}))
    else:
        show(figures)
    return 0 if all(verdicts(figures).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
