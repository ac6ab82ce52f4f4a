"""What must hold after a case, whatever the fault: on time, named, nothing left behind."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.cases import Case
from chaos.rank_in_a_case import Call, Report
from chaos.strikes import Struck

_DEATH = ("PeerDead",)
_ABSENCE = ("PeerNeverJoined", "PeerUnreachable")


def check(case: Case, struck: Struck, reports: Sequence[Report | None]) -> None:
    told = f"seed {case.seed}, {struck}, {reports}"
    assert struck.moment == case.moment, told
    if case.fault.is_fatal:
        assert struck.exit_code == case.fault.exit_code, told
    for rank, report in enumerate(reports):
        if report is None:
            assert case.fault.is_fatal, told
            assert rank == case.victim, told
            continue
        _check_in_time(case, report)
        _check_nothing_left(case, report)
        if rank != case.victim:
            _check_blame(case, rank, report)
            _check_survivor(case, rank, report)
        elif not case.falls_silent or case.is_joining:
            assert report.errors == [], told
    if not case.fault.is_fatal and (not case.falls_silent or case.is_joining):
        assert len({report.digest for report in reports if report}) == 1, f"replicas differ: {told}"


def _check_in_time(case: Case, report: Report) -> None:
    for call in report.calls:
        assert call.seconds <= call.allowed_s + case.limits.slack_s, f"{call} took too long: {report}"


def _check_nothing_left(case: Case, report: Report) -> None:
    assert report.left == [], report
    assert report.grown_kib <= case.limits.resident_growth_kib, report


def _check_blame(case: Case, rank: int, report: Report) -> None:
    """No survivor is ever blamed."""
    for call in report.errors:
        assert call.peers == (case.victim,), f"rank {rank} blames the wrong one: {report}"
    assert report.dead <= {case.victim}, report
    for warning in report.warnings:
        if "rank" in warning.partition("] ")[2] and "dead" in warning:
            assert f"rank {case.victim}" in warning, report


def _check_survivor(case: Case, rank: int, report: Report) -> None:
    if case.is_joining:
        _expect(report, "join" if case.fault.is_fatal else None, _ABSENCE)
    elif not case.fault.is_fatal and not case.falls_silent:
        _expect(report, None)
        assert report.dead == set(), f"taken for dead: {report}"
    elif case.moment == "hand-over":
        _expect_hand_over(case, rank, report)
    elif case.shape == "exact":
        _expect(report, "step", _DEATH)
        assert case.fault.is_fatal or report.heard_again, f"not heard again: {report}"
    elif case.shape == "ddp" and case.ranks == 2:
        _expect(report, "step", _DEATH)  # nobody is left
    else:
        _expect_outcomes(case, rank, report)


def _expect_outcomes(case: Case, rank: int, report: Report) -> None:
    """Bounded: survivors go on, and their outcomes say who is missing."""
    assert report.dead == {case.victim}, f"not seen dead: {report}"
    assert case.victim in report.late_at_last, report
    if case.fault.is_fatal:
        assert report.late_at_last == {case.victim}, report
        _expect_hand_over(case, rank, report)
    else:
        assert report.heard_again, f"not heard again: {report}"
        _expect(report, None)


def _expect_hand_over(case: Case, rank: int, report: Report) -> None:
    """Rank 0 serves all others; whoever has been served has no need of the one that is gone."""
    concerned = 0 in (rank, case.victim)
    _expect(report, "hand over" if concerned else None, _DEATH)


def _expect(report: Report, failing: str | None, errors: Sequence[str] = ()) -> None:
    failed: list[Call] = report.errors
    assert [call.name for call in failed] == ([] if failing is None else [failing]), report
    assert all(call.error in errors for call in failed), report
