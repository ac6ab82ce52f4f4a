"""The slowest operation of each Holdfast peer, kept while a cell is measured, and written down as text and picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.lab.bench.row import Operation, Setting
from holdfast.outcome import Outcome
from holdfast.telemetry.operation_picture import Seen, draw


@dataclass(frozen=True)
class Witness:
    """What one rank saw of an operation, and when it opened there, on CLOCK_MONOTONIC."""

    outcome: Outcome
    opened_ns: int


@dataclass(frozen=True)
class Slowest:
    operation: Operation
    start_ns: int
    witnesses: Sequence[Witness]


def write(folder: Path, setting: Setting, slowest_by_peer: Mapping[str, Slowest], num_operations: int) -> None:
    """`<profile>-<bytes>-<peer>.txt` and `.svg`, over those of an earlier attempt."""
    for peer, slowest in slowest_by_peer.items():
        stem = f"{setting.profile}-{setting.num_bytes}-{peer}"
        title = (
            f"{peer}, {setting.profile}, {setting.num_bytes:,} bytes: the slowest of {num_operations} operations, "
            f"{slowest.operation.seconds * 1e3:.1f} ms"
        )
        traces = [witness.outcome.trace() for witness in slowest.witnesses]
        text = "\n\n\n".join([f"{title}\n{_circumstances(slowest)}", *traces])
        (folder / f"{stem}.txt").write_text(text + "\n", encoding="utf-8")
        seen = [Seen(witness.outcome, (witness.opened_ns - slowest.start_ns) / 1e6) for witness in slowest.witnesses]
        (folder / f"{stem}.svg").write_text(draw(seen, title), encoding="utf-8")


def _circumstances(slowest: Slowest) -> str:
    operation = slowest.operation
    frozen = ", ".join(map(str, operation.frozen_hosts))
    opened = ", ".join(f"{(witness.opened_ns - slowest.start_ns) / 1e6:.1f}" for witness in slowest.witnesses)
    facts = [
        f"host {frozen} frozen meanwhile" if frozen else "",
        f"no transport could have done it in less than {operation.capacity_bound_s * 1e3:.1f} ms"
        if operation.capacity_bound_s is not None
        else "",
        f"the last rank began {operation.woke_late_s * 1e3:.1f} ms after the common start",
        f"it opened {opened} ms after that start, by rank",
    ]
    return "; ".join(fact for fact in facts if fact)
