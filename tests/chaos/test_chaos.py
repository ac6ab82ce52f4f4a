"""Every case of `faults.toml`, on real processes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chaos import cases
from chaos.cases import Case
from chaos.expectations import check
from chaos.footprint import Footprint
from chaos.rank_in_a_case import Report, take_part
from chaos.strikes import Struck, attend

CASES = cases.load()
ATTEMPTS = 3


def parameters() -> list[Any]:
    marks = {True: [pytest.mark.chaos], False: [pytest.mark.chaos, pytest.mark.slow]}
    return [pytest.param(case, id=case.name, marks=marks[case.quick]) for case in CASES]


@pytest.fixture(scope="session")
def parent_at_rest(rank_server: Any) -> Footprint:
    """What the test process holds once the fork server and the Store are there."""
    rank_server.run(_nothing, 1)
    return Footprint.here()


def _nothing(_member: Any) -> None:
    pass


@pytest.mark.parametrize("case", parameters())
def test_survivors_end_on_time_with_the_victim_named_and_nothing_left(
    start_ranks: Callable[..., Any], parent_at_rest: Footprint, record_property: Callable[..., None], case: Case
) -> None:
    started = time.monotonic()
    for _ in range(ATTEMPTS):
        struck, reports = run(start_ranks, case)
        # A loaded machine may stop it for longer than the case says; that is another case.
        if case.fault.effect != "pauses" or case.falls_silent or struck.paused_s < longest_brief_pause_s(case):
            break
    tell(record_property, case, time.monotonic() - started, reports)
    assert Footprint.here().left_since(parent_at_rest) == []
    check(case, struck, reports)


def run(start_ranks: Callable[..., Any], case: Case) -> tuple[Struck, list[Report | None]]:
    with start_ranks(take_part, case.ranks, case, timeout_s=100.0, group=case.shape == "ddp") as ranks:
        struck = attend(ranks, case)
        reports = ranks.results(dead={case.victim} if case.fault.is_fatal else ())
        pids = [process.pid for process in ranks.processes]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "a process remains"
    del ranks
    gc.collect()
    return struck, reports


def longest_brief_pause_s(case: Case) -> float:
    """Silence begins with the last heartbeat before the stop and ends with the first thing said after it."""
    return (case.limits.silence_limit_ms - 1.5 * case.limits.heartbeat_ms) / 1e3


def tell(record_property: Callable[..., None], case: Case, seconds: float, reports: Sequence[Report | None]) -> None:
    survivors = [report for rank, report in enumerate(reports) if report is not None and rank != case.victim]
    endings = [
        f"{call.name}: {call.error} {','.join(map(str, call.peers))}" for report in survivors for call in report.errors
    ]
    late = set().union(*(report.late for report in survivors))
    dead = set().union(*(report.dead for report in survivors))
    seen = [f"late {sorted(late)}"] * bool(late) + [f"dead {sorted(dead)}"] * bool(dead) + sorted(set(endings))
    seen += ["heard again"] * any(report.heard_again for report in survivors)
    for name, value in {
        "number": CASES.index(case),
        "case": case.name,
        "seconds": f"{seconds:.1f}",
        "what survivors saw": "; ".join(seen) or "nothing",
        "longest call s": f"{max(call.seconds for report in survivors for call in report.calls):.2f}",
        "memory KiB": "/".join(f"{report.grown_kib:+d}" for report in survivors),
        "left behind": ", ".join(thing for report in survivors for thing in report.left) or "nothing",
    }.items():
        record_property(name, value)
