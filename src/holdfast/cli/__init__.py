"""The `holdfast` command: one file per verb. The library logs, this prints.

In: arguments. Out: tables and progress for people, JSON for programs. Nothing imports this package.
"""

from __future__ import annotations

from holdfast.cli.signals import killed_by_interrupts


def main() -> None:
    with killed_by_interrupts():
        from holdfast.cli.command import run
    run()
