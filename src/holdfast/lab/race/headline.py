"""The race in one sentence, made from its figures, and what must be said beside it.

The sentence names who was first, by how much, and which share of the gradients Holdfast delivered for it: also when
Holdfast loses, when the lead is too small to mean anything, and when nobody arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.lab.lateness import TRUSTED_P999_MS
from holdfast.lab.race.result import LOOPBACK, RaceResult, Run
from holdfast.lab.race.units import metric_text, milliseconds_text, ratio_text, seconds_text, share_text, target_text

TRUSTED_LATENESS_US = TRUSTED_P999_MS * 1e3
BROKE_OFF = "broke off"
"""How the last event of a run begins that did not come to its end."""
LEVEL_RATIO = 1.02
"""Two per cent come and go between two runs of the same thing."""


@dataclass(frozen=True)
class Remark:
    text: str
    is_alarm: bool = False
    """The figures themselves are in doubt."""


def headline(result: RaceResult) -> str:
    """Who reached the target first, by how much, at which delivered share."""
    if not result.runs:
        return "No peer ran."
    arrived = by_arrival(result)
    if arrived[0].seconds_to_target is None:
        return _nobody(result)
    first = arrived[0]
    other = _best_of_other_camp(arrived)
    if other is None:
        return f"{name_of(first)} reached {target_text(result)} in {_took(first)}, with {_delivered(first)}."
    if other.seconds_to_target is None:
        return _only_one_arrived(result, first, other)
    if _is_level(result, first, other):
        return _level(result, first, other)
    return _clear_lead(result, first, other)


def remarks(result: RaceResult) -> list[Remark]:
    """What a reader must know before he believes the sentence."""
    said = []
    late = [run for run in result.runs if run.lateness and run.lateness.p999_us > TRUSTED_LATENESS_US]
    if late:
        worst = max(run.lateness.p999_us for run in late if run.lateness)
        said.append(
            Remark(
                f"Not to be trusted: the lab's switch was late during {_listed([run.peer for run in late])} (p99.9 up to "
                f"{milliseconds_text(worst / 1e3)}; the limit is 2 ms). Repeat the race on a quiet machine.",
                is_alarm=True,
            )
        )
    if result.profile == LOOPBACK:
        said.append(
            Remark(
                "Plain loopback loses nothing and keeps time, so this shows whether training is the same, not whether it "
                "is faster. The lab's networks need root."
            )
        )
    for run in result.runs:
        if run.events and run.events[-1].what.startswith(BROKE_OFF):
            said.append(Remark(f"{run.peer} {run.events[-1].what}", is_alarm=True))
    idle = [run.peer for run in result.runs if run.steps == 0]
    if idle:
        said.append(Remark(f"No step was trained by {_listed(idle)}."))
    return said


def by_arrival(result: RaceResult) -> list[Run]:
    """First those that reached the target, in that order; then the others, the closest first."""

    def order(run: Run) -> tuple[int, float]:
        if run.seconds_to_target is not None:
            return 0, run.seconds_to_target
        if not math.isfinite(run.final_metric):
            return 2, 0.0
        return 1, -run.final_metric if result.higher_is_better else run.final_metric

    return sorted(result.runs, key=order)


def is_holdfast(run: Run) -> bool:
    return run.peer.split("-")[0] == "holdfast"


def name_of(run: Run) -> str:
    """As in a sentence; variants keep the name that the command line knows."""
    return {"holdfast": "Holdfast", "gloo": "Gloo"}.get(run.peer, run.peer)


def _best_of_other_camp(arrived: Sequence[Run]) -> Run | None:
    """The fastest rival of the first: of the other camp if there is one, else simply the next."""
    first, rest = arrived[0], arrived[1:]
    rivals = [run for run in rest if is_holdfast(run) != is_holdfast(first)]
    return next(iter(rivals or rest), None)


def _clear_lead(result: RaceResult, first: Run, other: Run) -> str:
    assert first.seconds_to_target is not None
    assert other.seconds_to_target is not None
    times = ratio_text(other.seconds_to_target / max(first.seconds_to_target, 1e-9))
    target = target_text(result)
    if is_holdfast(other) and not is_holdfast(first):
        return (
            f"{name_of(first)} reached {target} first, in {_took(first)}. {name_of(other)} took {_took(other)}, "
            f"{times} times as long, with {_delivered(other)}."
        )
    fastest = ", the fastest rival" if _num_rivals(result, first) > 1 else ""
    return (
        f"{name_of(first)} reached {target} in {_took(first)}, {times} times as fast as {name_of(other)}{fastest} "
        f"({_took(other)}), with {_delivered(first)}."
    )


def _level(result: RaceResult, first: Run, other: Run) -> str:
    text = (
        f"Too close to call: {name_of(first)} reached {target_text(result)} in {_took(first)}, {name_of(other)} in "
        f"{_took(other)}"
    )
    holdfast = _holdfast_of(first, other)
    if holdfast is None:
        return f"{text}."
    return f"{text}; {name_of(holdfast)} delivered {share_text(holdfast.delivered_ratio)} of the gradients."


def _only_one_arrived(result: RaceResult, first: Run, other: Run) -> str:
    rivals = [run for run in result.runs if is_holdfast(run) == is_holdfast(other) and run is not first]
    who = f"none of {len(rivals)} rivals did" if len(rivals) > 1 else f"{name_of(other)} did not"
    text = f"{name_of(first)} reached {target_text(result)} in {_took(first)}; {who}"
    if math.isfinite(other.final_metric):
        closest = f"{name_of(other)} came closest with" if len(rivals) > 1 else "it ended at"
        text += f" ({closest} {metric_text(result, other.final_metric)} after {seconds_text(other.seconds)})"
    holdfast = _holdfast_of(first, other)
    if holdfast is None or not math.isfinite(holdfast.delivered_ratio):
        return f"{text}."
    return f"{text}. {name_of(holdfast)} delivered {share_text(holdfast.delivered_ratio)} of the gradients."


def _nobody(result: RaceResult) -> str:
    closest = by_arrival(result)[0]
    text = f"Nobody reached {target_text(result)}"
    if not math.isfinite(closest.final_metric):
        return f"{text}, and nobody got as far as an evaluation."
    best = metric_text(result, closest.final_metric)
    level = [name_of(run) for run in result.runs if metric_text(result, run.final_metric) == best]
    after = f" after {seconds_text(closest.seconds)}" if len(level) == 1 else ""
    text += f". {_listed(level)} came closest with {best}{after}"
    holdfast = next((run for run in by_arrival(result) if is_holdfast(run)), None)
    if holdfast is None or not math.isfinite(holdfast.delivered_ratio):
        return f"{text}."
    who = "it" if level == [name_of(holdfast)] else name_of(holdfast)
    return f"{text}; {who} delivered {share_text(holdfast.delivered_ratio)} of the gradients."


def _is_level(result: RaceResult, first: Run, other: Run) -> bool:
    """The target is only seen at evaluations: who reaches it at another one may have reached it up to one earlier."""
    assert first.seconds_to_target is not None
    assert other.seconds_to_target is not None
    lead = other.seconds_to_target - first.seconds_to_target
    noise = first.seconds_to_target * (LEVEL_RATIO - 1)
    steps, interval = zip(_arrival(result, first), _arrival(result, other), strict=True)
    if steps[0] != steps[1]:
        noise = max(noise, *interval)
    return lead <= noise


def _arrival(result: RaceResult, run: Run) -> tuple[int, float]:
    """Steps taken when the target was seen, and the seconds since it was last looked for."""
    before = 0.0
    for evaluation in run.evaluations:
        if result.reached(evaluation.metric):
            return evaluation.steps, evaluation.seconds - before
        before = evaluation.seconds
    return run.steps, 0.0


def _num_rivals(result: RaceResult, first: Run) -> int:
    return sum(is_holdfast(run) != is_holdfast(first) for run in result.runs)


def _holdfast_of(first: Run, other: Run) -> Run | None:
    return first if is_holdfast(first) else other if is_holdfast(other) else None


def _took(run: Run) -> str:
    return seconds_text(math.nan if run.seconds_to_target is None else run.seconds_to_target)


def _delivered(run: Run) -> str:
    return f"{share_text(run.delivered_ratio)} of the gradients delivered"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
