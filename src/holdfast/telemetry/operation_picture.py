"""One operation as a picture (SVG): a panel for every rank that tells it, in it a bar for every peer and stage.

Written by hand, so that whoever can train can also draw. Colours tell the stages apart, and what is missing; light or
dark is the viewer's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from holdfast.telemetry.operation_stages import Arrival, Stage, percent, stages_of, what_held_it_up
from holdfast.telemetry.operation_trace import nice_step

if TYPE_CHECKING:
    from holdfast.outcome import Outcome, StageEnd

_WIDTH = 1040
_LEFT, _RIGHT = 180, 176
_PLOT = _WIDTH - _LEFT - _RIGHT
_TOP, _BOTTOM = 92, 38
_ROW, _BAR = 14, 9
_HEADING, _STAGE_GAP, _PANEL_GAP = 34, 6, 12
_MOST_TICKS = 8
_LEAST_BAR = 2.5
_ALARMING_SHARE = 0.05
"""Less than this missing is what a lossy network does to everybody, and no reason to point at anyone."""
_ENDED: dict[StageEnd, str] = {
    "complete": "complete",
    "early": "ended early",
    "limit": "cut off at the limit",
    "bound": "cut off by the bound",
    "open": "not ended",
}

# Okabe and Ito's colours, as in the race's report.
_STYLE = """
  svg { --paper: #ffffff; --band: #f4f6f8; --ink: #15202b; --soft: #5b6672; --grid: #dde2e8; --alarm: #b3261e;
        --contributions: #0072b2; --results: #009e73; --hole: #fdecea; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #171e26; --band: #1e2731; --ink: #e8edf2; --soft: #9aa6b2; --grid: #2c3743; --alarm: #ff8a80;
          --contributions: #45a5e6; --results: #2ec4a0; --hole: #3a1d1c; }
  }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
  .title { font-size: 19px; font-weight: 650; }
  .panel { font-size: 13px; font-weight: 650; }
  .soft { fill: var(--soft); }
  .alarm { fill: var(--alarm); font-weight: 600; }
  .row { font-size: 11px; }
  .contributions { fill: var(--contributions); }
  .results { fill: var(--results); }
  .hole { fill: var(--hole); }
  .band { fill: var(--band); }
  .call { fill: var(--ink); }
  .grid { stroke: var(--grid); }
  .end { stroke: var(--ink); stroke-width: 1.5; }
  .end.bound, .end.limit { stroke: var(--alarm); stroke-width: 2; }
  .end.limit { stroke-dasharray: 4 3; }
  .end.early { stroke-dasharray: 4 3; }
"""


@dataclass(frozen=True)
class Seen:
    """What one rank says about the operation, and when it opened there on a clock that all of them share."""

    outcome: Outcome
    opened_ms: float = 0.0


def draw(seen: Sequence[Seen], title: str | None = None) -> str:
    """An SVG document. Several ranks of one operation have one axis, from the earliest opening on."""
    if not seen:
        raise ValueError("no rank has seen this operation")
    seen = sorted(seen, key=lambda each: each.outcome.rank)
    first_ms = min(each.opened_ms for each in seen)
    panels = [_Panel(each.outcome, each.opened_ms - first_ms) for each in seen]
    scale = _Scale(max(panel.last_ms for panel in panels))
    tops, y = [], float(_TOP)
    for panel in panels:
        tops.append(y)
        y += panel.height + _PANEL_GAP
    bottom = y - _PANEL_GAP
    slowest = max(seen, key=lambda each: each.opened_ms + each.outcome.ended_ms).outcome
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + _BOTTOM:g}" width="{_WIDTH}" '
        f'height="{bottom + _BOTTOM:g}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{bottom + _BOTTOM:g}" style="fill: var(--paper)"/>',
        _text(24, 32, title or _usual_title(slowest), "title"),
        _text(24, 54, f"Rank {slowest.rank} was held up by {what_held_it_up(slowest)}.", "soft"),
        *_legend(),
    ]
    for panel, top in zip(panels, tops, strict=True):
        pieces += panel.draw(top, scale)
    return "\n".join([*pieces, *scale.axis(bottom), "</svg>", ""])


class _Scale:
    """Milliseconds to pixels."""

    def __init__(self, whole_ms: float) -> None:
        self._whole_ms = max(whole_ms, 0.001)

    def x(self, ms: float) -> float:
        return round(_LEFT + _PLOT * ms / self._whole_ms, 2)

    @property
    def _ticks_ms(self) -> list[float]:
        step_ms = nice_step(self._whole_ms, _MOST_TICKS)
        return [tick * step_ms for tick in range(int(self._whole_ms / step_ms + 1e-9) + 1)]

    def grid(self, top: float, bottom: float) -> list[str]:
        return [
            f'<line class="grid" x1="{self.x(ms)}" x2="{self.x(ms)}" y1="{top:g}" y2="{bottom:g}"/>'
            for ms in self._ticks_ms
        ]

    def axis(self, bottom: float) -> list[str]:
        numbers = [_text(self.x(ms), bottom + 18, f"{ms:g}", "soft", "middle") for ms in self._ticks_ms]
        return [*numbers, _text(_LEFT + _PLOT + 14, bottom + 18, "ms since it opened", "soft")]


class _Panel:
    def __init__(self, outcome: Outcome, opened_ms: float) -> None:
        self._outcome, self._opened_ms = outcome, opened_ms
        self._stages = stages_of(outcome)
        spans = [arrival.span_ms for stage in self._stages for arrival in stage.arrivals if arrival.span_ms is not None]
        ends_ms = [stage.ended_ms for stage in self._stages]
        self.last_ms = opened_ms + max([*ends_ms, *(last for _, last in spans)])
        self.height = _HEADING + 2 * len(outcome.peers) * _ROW + _STAGE_GAP + 8

    def draw(self, top: float, scale: _Scale) -> list[str]:
        outcome = self._outcome
        pieces = [
            f'<rect class="band" x="16" y="{top:g}" width="{_WIDTH - 32}" height="{self.height:g}" rx="6"/>',
            *scale.grid(top + _HEADING - 4, top + self.height),
            _text(28, top + 18, f"rank {outcome.rank}", "panel"),
            _text(_LEFT, top + 18, self._summary(), "soft"),
        ]
        y = top + _HEADING
        for stage in self._stages:
            bottom = y + _ROW * len(stage.arrivals)
            if stage.arrivals:
                pieces.append(_text(28, y + 10, stage.name, f"row {stage.name}"))
            for arrival in stage.arrivals:
                pieces += self._row(stage, arrival, y, scale)
                y += _ROW
            x = scale.x(self._opened_ms + stage.ended_ms)
            pieces.append(
                f'<line class="end {stage.end}" x1="{x}" x2="{x}" y1="{bottom - _ROW * len(stage.arrivals) - 1:g}" '
                f'y2="{bottom:g}"><title>{escape(f"{stage.name}: {stage.reason}")}</title></line>'
            )
            y = bottom + _STAGE_GAP
        return [*pieces, *self._own_call(top, scale)]

    def _summary(self) -> str:
        ends = "; ".join(
            f"{stage.name} {_ENDED[stage.end]} at {stage.ended_ms + self._opened_ms:.1f} ms" for stage in self._stages
        )
        return f"{percent(self._outcome.delivered_ratio)} delivered; {ends}"

    def _own_call(self, top: float, scale: _Scale) -> list[str]:
        x, y = scale.x(self._opened_ms + self._outcome.called_ms), top + _HEADING - 5
        return [
            f'<path class="call" d="M{x - 5:g} {y - 6:g}h10l-5 7z">'
            f"<title>this rank calls, {self._outcome.called_ms:.1f} ms after the operation opened here</title></path>"
        ]

    def _row(self, stage: Stage, arrival: Arrival, y: float, scale: _Scale) -> list[str]:
        middle = y + _ROW / 2
        missing = 1 - arrival.share
        pieces = []
        if not arrival.complete:
            pieces.append(
                f'<rect class="hole" x="{_LEFT}" y="{y:g}" width="{_PLOT}" height="{_ROW}" '
                f'fill-opacity="{min(1.0, 0.2 + missing):.2f}"/>'
            )
        pieces.append(_text(_LEFT - 10, middle + 4, f"from rank {arrival.rank}", "row soft", "end"))
        if arrival.span_ms is not None:
            first, last = (scale.x(self._opened_ms + ms) for ms in arrival.span_ms)
            when = f"{arrival.span_ms[0]:.1f} to {arrival.span_ms[1]:.1f} ms"
            pieces.append(
                f'<rect class="bar {stage.name}{"" if arrival.complete else " partial"}" x="{first}" '
                f'y="{y + (_ROW - _BAR) / 2:g}" width="{max(_LEAST_BAR, last - first):g}" height="{_BAR}" rx="1.5" '
                f'fill-opacity="{1 - 0.6 * missing:.2f}">'
                f"<title>{stage.name} from rank {arrival.rank}: {percent(arrival.share)}, {when}</title></rect>"
            )
        if arrival.remark:
            style = "row alarm" if missing >= _ALARMING_SHARE else "row soft"
            pieces.append(_text(_LEFT + _PLOT + 14, middle + 4, arrival.remark, style))
        return pieces


def _legend() -> list[str]:
    pieces, x = [], 24.0
    for style, text, width in (
        ("contributions", "contributions: gradients that this rank sums", 282),
        ("results", "results: sums that others send back", 238),
    ):
        pieces.append(f'<rect class="{style}" x="{x:g}" y="64" width="18" height="{_BAR}" rx="1.5"/>')
        pieces.append(_text(x + 24, 73, text, "row soft"))
        x += width
    pieces.append(f'<path class="call" d="M{x:g} 65h10l-5 7z"/>')
    pieces.append(_text(x + 15, 73, "own call", "row soft"))
    x += 82
    for end, text, width in (
        ("complete", "all came", 76),
        ("early", "ended early", 90),
        ("limit", "at the limit", 88),
        ("bound", "at the bound", 0),
    ):
        pieces.append(f'<line class="end {end}" x1="{x:g}" x2="{x:g}" y1="62" y2="75"/>')
        pieces.append(_text(x + 8, 73, text, "row soft"))
        x += width
    return pieces


def _usual_title(outcome: Outcome) -> str:
    return (
        f"Operation {outcome.operation}: {outcome.num_bytes:,} bytes in {outcome.elapsed_ms:.1f} ms, "
        f"{percent(outcome.delivered_ratio)} delivered"
    )


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
