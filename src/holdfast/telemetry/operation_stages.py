"""What the times of one operation mean: who came when in each stage, what ended it, and what held it up.

All times are milliseconds since the operation opened on the rank that tells it: with its own call, or with the first
datagram of a rank that called before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holdfast.outcome import Outcome, PeerOutcome, StageEnd

StageName = Literal["contributions", "results"]

_ONE_IS_TO_BLAME_RATIO = 0.25
"""Who is last by less than this share of the stage was just one of many."""
_HARDLY_LATE_MS = 1.0
_CLOCK_MS = 0.5
"""A timer is this late without anybody noticing."""
_AS_LONG_RATIO = 1.1
"""Where both stages took as long, what happened in the first caused the second."""


@dataclass(frozen=True)
class Arrival:
    """What one peer sent in one stage."""

    rank: int
    share: float
    """Of what it should have sent, what came in time."""
    span_ms: tuple[float, float] | None
    """The first and the last useful datagram."""
    alive: bool
    is_last: bool
    """Its last datagram completed the stage."""
    is_empty: bool
    """There was nothing to send."""

    @property
    def complete(self) -> bool:
        return self.share == 1.0

    @property
    def remark(self) -> str:
        """What sets it apart from the others; empty for most."""
        if self.complete:
            return "nothing to send" if self.is_empty else "last" if self.is_last else ""
        what = f"{percent(1 - self.share)} missing" if self.span_ms is not None else "nothing came"
        return what if self.alive else f"dead, {what}"


@dataclass(frozen=True)
class Stage:
    """One of the two halves of an operation, as one rank saw it."""

    name: StageName
    began_ms: float
    """From when on its time counts. What arrives may be earlier."""
    ended_ms: float
    end: StageEnd
    arrivals: Sequence[Arrival]
    reason: str
    """What ended it, in words."""

    @property
    def lasted_ms(self) -> float:
        return self.ended_ms - self.began_ms

    @property
    def missing(self) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if not arrival.complete]


def stages_of(outcome: Outcome) -> tuple[Stage, Stage]:
    contributions = _arrivals(outcome, "contributions", outcome.contributions_end)
    results = _arrivals(outcome, "results", outcome.results_end)
    closed_ms = outcome.contributions_ms
    return (
        Stage(
            "contributions", 0.0, closed_ms, outcome.contributions_end, contributions,
            _reason(outcome, "contributions", outcome.contributions_end, closed_ms, contributions),
        ),
        Stage(
            "results", max(closed_ms, outcome.called_ms), outcome.ended_ms, outcome.results_end, results,
            _reason(outcome, "results", outcome.results_end, outcome.ended_ms, results),
        ),
    )  # fmt: skip


def what_held_it_up(outcome: Outcome) -> str:
    """The one thing to look at first."""
    if not outcome.peers:
        return "nothing: there is no other rank"
    if outcome.called_ms > _HARDLY_LATE_MS and outcome.called_ms >= outcome.ended_ms / 2:
        return f"rank {outcome.rank} itself, which called {outcome.called_ms:.1f} ms after the operation had opened"
    contributions, results = stages_of(outcome)
    waited_ms = contributions.ended_ms - min(outcome.called_ms, contributions.ended_ms)
    stage = contributions if _AS_LONG_RATIO * waited_ms >= results.lasted_ms else results
    cut_off = stage.end in ("limit", "bound")
    if cut_off and len(stage.arrivals) > 1 and all(each.share < 0.5 for each in stage.arrivals):
        return f"rank {outcome.rank}'s own network, or those of all others: little or nothing came from any of them"
    waited_in_vain_ms = stage.ended_ms - _quiet_since_ms(outcome, stage.name, stage.arrivals)
    if cut_off and stage.missing:
        return f"{_named(stage.missing)}, in the {stage.name}, until the {stage.end}"
    if stage.end == "early" and waited_in_vain_ms > _ONE_IS_TO_BLAME_RATIO * stage.lasted_ms:
        return f"{_named(stage.missing)}, in the {stage.name}, until it was given up"
    return _last_to_come(stage)


def percent(share: float) -> str:
    """Never rounded to nothing, nor to all."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    return f"{share:.0%}" if share in (0.0, 1.0) else f"{share:.1%}"


def _arrivals(outcome: Outcome, name: StageName, end: StageEnd) -> tuple[Arrival, ...]:
    def span_of(peer: PeerOutcome) -> tuple[float, float] | None:
        return peer.contribution_arrived_ms if name == "contributions" else peer.results_arrived_ms

    lasts = [span[1] for peer in outcome.peers if (span := span_of(peer)) is not None]
    last_ms = max(lasts) if end == "complete" and len(lasts) > 1 else None
    return tuple(
        Arrival(
            rank=peer.rank,
            share=peer.contributed_ratio if name == "contributions" else peer.results_ratio,
            span_ms=(span := span_of(peer)),
            alive=peer.alive,
            is_last=span is not None and span[1] == last_ms,
            is_empty=(outcome.shard_elements if name == "contributions" else peer.shard_elements) == 0,
        )
        for peer in outcome.peers
    )


def _reason(outcome: Outcome, name: StageName, end: StageEnd, ended_ms: float, arrivals: Sequence[Arrival]) -> str:
    if end == "complete":
        return _why_complete(outcome, name, arrivals)
    if end == "early":
        return _why_early(outcome, name, ended_ms, arrivals)
    if end == "limit":
        return _why_limit(outcome, name, ended_ms, arrivals)
    if end == "bound":
        return _why_bound(outcome, name, arrivals)
    return "did not end"


def _why_complete(outcome: Outcome, name: StageName, arrivals: Sequence[Arrival]) -> str:
    absent = [arrival for arrival in arrivals if not arrival.complete]
    came = "everything had come" if not absent else f"everything had come, but from {_named(absent)}"
    if not arrivals:
        return "complete: there was nobody to wait for"
    timed = [arrival for arrival in arrivals if arrival.span_ms is not None]
    last = max(timed, key=_last_ms, default=None)
    if last is None:
        return f"complete: {came}"
    if name == "contributions" and outcome.called_ms > _last_ms(last):
        return (
            f"complete: {came} by {_last_ms(last):.1f} ms, and then this rank's own call at {outcome.called_ms:.1f} ms"
        )
    if name == "results" and outcome.called_ms > max(_last_ms(last), outcome.contributions_ms):
        return f"complete: {came} by {_last_ms(last):.1f} ms, before this rank called"
    if name == "results" and outcome.contributions_ms > _last_ms(last):
        return f"complete: {came} by {_last_ms(last):.1f} ms, before the contributions here"
    return f"complete: {came}, the last from rank {last.rank} at {_last_ms(last):.1f} ms"


def _why_early(outcome: Outcome, name: StageName, ended_ms: float, arrivals: Sequence[Arrival]) -> str:
    silence_ms = ended_ms - _quiet_since_ms(outcome, name, arrivals)
    silent = [f"rank {arrival.rank}" for arrival in arrivals if not arrival.complete and arrival.span_ms is None]
    but_for = f", but for {', '.join(silent)} that had said nothing," if silent else ","
    text = f"early: something of every sender's last percentile was in{but_for} and nothing new came for {silence_ms:.1f} ms"
    if outcome.early_wait_ms is not None:
        wait_ms = outcome.early_wait_ms[0 if name == "contributions" else 1]
        if silence_ms < wait_ms:
            text += f" (less than the {wait_ms:.1f} ms in force, as every sender had said that all was sent)"
        else:
            text += f" ({wait_ms:.1f} ms in force)"
    return f"{text}; given up: {_named([arrival for arrival in arrivals if not arrival.complete])}"


def _quiet_since_ms(outcome: Outcome, name: StageName, arrivals: Sequence[Arrival]) -> float:
    """From when on nothing new came while the stage was open and this rank waited."""
    began_ms = outcome.called_ms if name == "contributions" else max(outcome.called_ms, outcome.contributions_ms)
    return max([began_ms, *(_last_ms(arrival) for arrival in arrivals if arrival.span_ms is not None)])


def _why_bound(outcome: Outcome, name: StageName, arrivals: Sequence[Arrival]) -> str:
    t_b_ms = outcome.deadline_ms / 2
    if name == "contributions":
        passed = f"t_B, {t_b_ms:.1f} ms, had passed since the operation opened"
        if (late_ms := outcome.contributions_ms - t_b_ms) > _HARDLY_LATE_MS:
            passed += f" (noticed {late_ms:.1f} ms late: this process did not run)"
    elif outcome.contributions_ms > outcome.called_ms + t_b_ms + _CLOCK_MS:
        # This process did not run when its first stage was to end, and does not get that time back.
        passed = f"twice t_B, {outcome.deadline_ms:.1f} ms, had passed since this rank called"
    else:
        begin = "this rank called" if outcome.called_ms > outcome.contributions_ms else "the contributions ended"
        passed = f"t_B, {t_b_ms:.1f} ms, had passed since {begin}"
    had_not_called = name == "contributions" and outcome.called_ms > outcome.contributions_ms
    own = "; this rank had not called yet" if had_not_called else ""
    return f"bound: {passed}{_missing(arrivals)}{own}"


def _why_limit(outcome: Outcome, name: StageName, ended_ms: float, arrivals: Sequence[Arrival]) -> str:
    since, began_ms = (
        ("the operation opened", 0.0) if name == "contributions" else ("this rank called", outcome.called_ms)
    )
    passed = f"{ended_ms - began_ms:.1f} ms had passed since {since}, which is more than usual"
    return f"limit: {passed}{_missing(arrivals)}"


def _missing(arrivals: Sequence[Arrival]) -> str:
    absent = [arrival for arrival in arrivals if not arrival.complete]
    return f"; missing: {_named(absent)}" if absent else ""


def _last_to_come(stage: Stage) -> str:
    timed = sorted((arrival for arrival in stage.arrivals if arrival.span_ms is not None), key=_last_ms)
    if not timed:
        return "nothing: there was nothing to send"
    before_ms = _last_ms(timed[-2]) if len(timed) > 1 else 0.0
    after_ms = _last_ms(timed[-1]) - before_ms
    if len(timed) > 1 and after_ms < _ONE_IS_TO_BLAME_RATIO * stage.ended_ms:
        spread_ms = _last_ms(timed[-1]) - _last_ms(timed[0])
        return (
            f"nobody in particular: the {stage.name} of {len(timed)} peers were in by {_last_ms(timed[-1]):.1f} ms, "
            f"within {spread_ms:.1f} ms of each other"
        )
    others = f"{after_ms:.1f} ms after all others" if len(timed) > 1 else f"at {after_ms:.1f} ms"
    return f"rank {timed[-1].rank}, whose part of the {stage.name} was in {others}"


def _last_ms(arrival: Arrival) -> float:
    assert arrival.span_ms is not None
    return arrival.span_ms[1]


def _named(arrivals: Sequence[Arrival]) -> str:
    return ", ".join(f"rank {arrival.rank} ({arrival.remark})" for arrival in arrivals)
