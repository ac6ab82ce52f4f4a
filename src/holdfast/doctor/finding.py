"""What one check came to, and what all of them mean together."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Status(enum.StrEnum):
    """How much a finding matters."""

    OK = "ok"
    ADVICE = "advice"  # a job runs, and could run better
    PROBLEM = "problem"  # a job does not run


_BY_WEIGHT = (Status.PROBLEM, Status.ADVICE, Status.OK)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """Which check; one check may give several findings (one route per peer)."""

    status: Status

    found: str
    """What is the case, with figures."""

    consequence: str = ""
    """What that means for a job; empty when nothing has to be said."""

    to_do: str = ""
    """What to type, as lines for a shell; lines that begin with # are for reading. Empty when nothing is to be done."""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Status.OK, found)


def advice(check: str, found: str, consequence: str, *to_do: str) -> Finding:
    return Finding(check, Status.ADVICE, found, consequence, "\n".join(to_do))


def problem(check: str, found: str, consequence: str, *to_do: str) -> Finding:
    return Finding(check, Status.PROBLEM, found, consequence, "\n".join(to_do))


def worst(findings: Iterable[Finding]) -> Status:
    """The gravest status among them; ok when there are none."""
    statuses = {finding.status for finding in findings}
    return next((status for status in _BY_WEIGHT if status in statuses), Status.OK)


def by_urgency(findings: Iterable[Finding]) -> list[Finding]:
    """Problems first, then advice; otherwise in the order of the checks."""
    return sorted(findings, key=lambda finding: _BY_WEIGHT.index(finding.status))
