"""The table at the end: what every case did and what it came to."""

from __future__ import annotations

from typing import Any

import pytest

_COLUMNS = ("case", "seconds", "what survivors saw", "longest call s", "memory KiB", "left behind")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: kills, stops or blocks real ranks; `make chaos` runs all of them")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    rows = [dict(report.user_properties) | {"passed": report.passed} for report in reports if report.when == "call"]
    rows = sorted((row for row in rows if "case" in row), key=lambda row: row["number"])
    if not rows:
        return
    lines = [_COLUMNS] + [tuple(str(row.get(column, "")) for column in _COLUMNS) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    terminalreporter.section("chaos")
    for row, line in zip([{"passed": True}, *rows], lines, strict=True):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        terminalreporter.write_line(text if row["passed"] else f"{text}  FAILED")
    failed = sum(not row["passed"] for row in rows)
    terminalreporter.write_line(f"{len(rows)} cases, {failed} failed")
