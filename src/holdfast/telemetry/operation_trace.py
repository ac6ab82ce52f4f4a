"""One operation in characters: a line for every peer and stage on a common axis of time, and why each stage ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.telemetry.operation_stages import Arrival, percent, stages_of, what_held_it_up

if TYPE_CHECKING:
    from holdfast.outcome import Outcome

_BAR_COLUMNS = 50
_MOST_TICKS = 6
_STAGE_WIDTH, _RANK_WIDTH, _SHARE_WIDTH, _TIMES_WIDTH = 14, 9, 7, 15
_LABEL_WIDTH = _STAGE_WIDTH + _RANK_WIDTH + _SHARE_WIDTH + _TIMES_WIDTH


def trace(outcome: Outcome) -> str:
    stages = stages_of(outcome)
    spans = [arrival.span_ms for stage in stages for arrival in stage.arrivals if arrival.span_ms is not None]
    scale = _Scale(max([outcome.ended_ms, stages[0].ended_ms, *(last for _, last in spans)]))
    own_call = f"{f'rank {outcome.rank} calls':<{_LABEL_WIDTH}} {' ' * scale.column(outcome.called_ms)}v"
    lines = [*_heading(outcome), "", *scale.axis(), own_call]
    for stage in stages:
        for number, arrival in enumerate(stage.arrivals):
            lines.append(_line("" if number else stage.name, arrival, scale.bar(arrival, stage.ended_ms)))
    lines.append("")
    lines += [f"{stage.name} ended at {stage.ended_ms:.1f} ms, {stage.reason}" for stage in stages]
    lines += [f"held up by {what_held_it_up(outcome)}"]
    return "\n".join(line.rstrip() for line in lines)


def nice_step(whole: float, most: int) -> float:
    """The smallest of 1, 2, 5, 10, ... (and their tenths) of which no more than `most` fit."""
    least = whole / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def _heading(outcome: Outcome) -> list[str]:
    where = "" if outcome.bucket is None else f"bucket {outcome.bucket}, "
    kind = "exact" if outcome.exact else "bounded"
    return [
        f"operation {outcome.operation} ({where}{outcome.num_bytes:,} bytes, {kind}) as rank {outcome.rank} of "
        f"{len(outcome.peers) + 1} saw it: {percent(outcome.delivered_ratio)} delivered",
        f"{outcome.elapsed_ms:.1f} ms from this rank's call to the end, of at most {outcome.deadline_ms:.1f} ms; "
        + _called(outcome),
        "elements to sum: " + ", ".join(f"rank {rank} {count:,}" for rank, count in _shards(outcome)),
    ]


def _called(outcome: Outcome) -> str:
    if outcome.called_ms == 0:
        return "this rank's call opened it"
    return f"a peer opened it, this rank called {outcome.called_ms:.1f} ms later"


def _shards(outcome: Outcome) -> list[tuple[int, int]]:
    return sorted(
        [(outcome.rank, outcome.shard_elements), *((peer.rank, peer.shard_elements) for peer in outcome.peers)]
    )


def _between(arrival: Arrival) -> str:
    return "-" if arrival.span_ms is None else f"{arrival.span_ms[0]:.1f} - {arrival.span_ms[1]:.1f}"


def _line(stage: str, arrival: Arrival, bar: str) -> str:
    label = (
        f"{stage:<{_STAGE_WIDTH}}{f'rank {arrival.rank}':<{_RANK_WIDTH}}{percent(arrival.share):>{_SHARE_WIDTH}}"
        f"{_between(arrival):>{_TIMES_WIDTH}}"
    )
    return f"{label} {bar} {arrival.remark}"


class _Scale:
    """Milliseconds to columns."""

    def __init__(self, whole_ms: float) -> None:
        self._step_ms = nice_step(max(whole_ms, 0.001), _MOST_TICKS)
        self._whole_ms = max(whole_ms, 0.001)

    def column(self, ms: float) -> int:
        return min(_BAR_COLUMNS - 1, max(0, round(ms / self._whole_ms * (_BAR_COLUMNS - 1))))

    def axis(self) -> list[str]:
        numbers, ticks = [" "] * (_BAR_COLUMNS + 8), ["-"] * _BAR_COLUMNS
        for tick in range(int(self._whole_ms / self._step_ms + 1e-9) + 1):
            column = self.column(tick * self._step_ms)
            ticks[column] = "+"
            text = f"{tick * self._step_ms:g}"
            numbers[column : column + len(text)] = text
        label = "ms since the operation opened"
        return [f"{label:<{_LABEL_WIDTH}} {''.join(numbers)}", " " * (_LABEL_WIDTH + 1) + "".join(ticks)]

    def bar(self, arrival: Arrival, ended_ms: float) -> str:
        """From the first to the last datagram (`~`: with something missing), and where the stage ended."""
        cells = [" "] * (_BAR_COLUMNS + 1)
        end = self.column(ended_ms)
        if arrival.span_ms is not None:
            first, last = (self.column(ms) for ms in arrival.span_ms)
            cells[first : last + 1] = ("=" if arrival.complete else "~") * (last + 1 - first)
            end = last + 1 if end == last else end
        cells[end] = "|"
        return "".join(cells)
