"""The rows of `holdfast bench` as tables: loopback in the columns of nccl-tests, a lab's network with its bounds."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from holdfast.lab.bench.row import LOOPBACK, Row
from holdfast.lab.peer import PEERS

# Where no terminal sets the width: wide enough for every column.
WIDE = 200
_STOCK = ("gloo-cubic", "gloo-bbr")
_TUNED = ("gloo-tuned",)


def tables(rows: Sequence[Row]) -> list[Table]:
    """One per network."""
    made = []
    for profile in dict.fromkeys(row.profile for row in rows):
        of_profile = [row for row in rows if row.profile == profile]
        if profile == LOOPBACK:
            made.append(_loopback(of_profile))
            continue
        made.append(_lab(of_profile))
        if any(row.frozen_operations for row in of_profile):
            made.append(_frozen(of_profile))
    return made


def best_rival(row: Row, rows: Sequence[Row], names: Sequence[str], figure: str) -> float | None:
    """The least such figure among these peers, in the same cell and with as many bytes on the wire."""
    wire_bytes = PEERS[row.peer].wire_bytes
    named = {f"{name}-bf16" for name in names} if wire_bytes == 2 else set(names)
    figures = [
        float(getattr(other, figure))
        for other in rows
        if other.peer in named and (other.profile, other.bytes) == (row.profile, row.bytes)
    ]
    return min(figures, default=None)


def _loopback(rows: Sequence[Row]) -> Table:
    table = _table(
        f"all-reduce, float32, {rows[0].ranks} ranks, loopback",
        "times in ms, of the slowest rank; bandwidths in GB/s, as nccl-tests counts them",
        ["size", "count", "peer", "p50", "p95", "p99", "max", "algbw", "busbw", "delivered", "#wrong", "p50/gloo"],
    )
    gloo_p50 = {row.bytes: row.p50_ms for row in rows if row.peer == "gloo"}
    for row in rows:
        algorithm_bandwidth = row.bytes / row.p50_ms / 1e6
        bus_bandwidth = algorithm_bandwidth * 2 * (row.ranks - 1) / row.ranks
        times = (f"{value:.2f}" for value in (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms))
        table.add_row(
            str(row.bytes), str(row.bytes // 4), row.peer, *times, f"{algorithm_bandwidth:.2f}", f"{bus_bandwidth:.2f}",
            share(row.delivered_ratio), str(row.wrong), _ratio(row.p50_ms, gloo_p50.get(row.bytes)),
        )  # fmt: skip
    return table


def _lab(rows: Sequence[Row]) -> Table:
    table = _table(
        f"all-reduce, float32, {rows[0].ranks} hosts, {rows[0].profile}, seed {rows[0].seed}, {rows[0].iterations} each",
        "times in ms, of the slowest rank; x LB: times 2(N-1)/N of the bytes at the line rate; x cap: p99 over p99 of "
        "the capacity bound;\n/stock, /tuned: over the better of gloo-cubic and gloo-bbr, over gloo-tuned (bf16 over "
        "bf16); 16 bit: of what came, because it was late; lost: packets in the switch; late: the switch, p99.9;\nstolen: processor time that the hypervisor gave to others; "
        "noisy: late in every try",
        ["size", "peer", "TCP", "p50", "p99", "max", "LB", "p50 x LB", "p99 x LB", "x cap", "p50/stock", "p99/stock",
         "p50/tuned", "p99/tuned", "delivered", "16 bit", "lost", "late", "stolen", "note"],
    )  # fmt: skip
    previous = rows[0].bytes
    for row in rows:
        if row.bytes != previous:
            table.add_section()
            previous = row.bytes
        rivals = [
            _ratio(getattr(row, figure), best_rival(row, rows, names, figure))
            for names in (_STOCK, _TUNED)
            for figure in ("p50_ms", "p99_ms")
        ]
        tcp = "-" if row.congestion_control is None else f"{row.congestion_control} {row.rto_min_ms:g} ms"
        times = (f"{value:.2f}" for value in (row.p50_ms, row.p99_ms, row.max_ms))
        table.add_row(
            _size(row.bytes), row.peer, tcp, *times, "-" if row.lower_bound_ms is None else f"{row.lower_bound_ms:.2f}",
            _ratio(row.p50_ms, row.lower_bound_ms), _ratio(row.p99_ms, row.lower_bound_ms),
            _ratio(row.p99_ms, row.capacity_bound_p99_ms), *rivals,
            share(row.delivered_ratio), f"{row.narrow_ratio:.1%}" if row.narrow_ratio else "-", str(sum(row.lost_packets.values())), f"{row.late_p999_ms or 0:.2f}",
            f"{row.stolen_ratio:.1%}", _note(row),
        )  # fmt: skip
    return table


def _frozen(rows: Sequence[Row]) -> Table:
    table = _table(
        f"the operations of {rows[0].profile} during which a host was frozen",
        "times in ms, of the slowest rank that was not frozen; delivered: among those",
        ["size", "peer", "operations", "p50", "p99", "delivered"],
    )
    for row in rows:
        if row.frozen_p50_ms is None or row.frozen_p99_ms is None or row.frozen_delivered_ratio is None:
            continue
        table.add_row(
            _size(row.bytes), row.peer, f"{row.frozen_operations} of {row.iterations}", f"{row.frozen_p50_ms:.2f}",
            f"{row.frozen_p99_ms:.2f}", share(row.frozen_delivered_ratio),
        )  # fmt: skip
    return table


def _table(title: str, caption: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in ("peer", "TCP", "note") else "right", no_wrap=True)
    return table


def _note(row: Row) -> str:
    words = [f"{row.wrong} wrong"] if row.wrong else []
    if row.noisy:
        words.append(f"noisy, {row.attempts} tries")
    elif row.attempts > 1:
        words.append(f"try {row.attempts}")
    return ", ".join(words)


def _ratio(figure: float, reference: float | None) -> str:
    return "-" if not reference else f"{figure / reference:.2f}"


def _size(num_bytes: int) -> str:
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if num_bytes % factor == 0:
            return f"{num_bytes // factor}{unit}"
    return str(num_bytes)


def share(ratio: float) -> str:
    """Never rounded up to 100%: a loss is to be seen."""
    return "100%" if ratio == 1 else f"{int(ratio * 1e5) / 1e3:.3f}%"
