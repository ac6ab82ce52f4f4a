"""What a peer has done in a race so far, and the `Run` that it becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, pairwise

from holdfast.lab.lateness import Lateness
from holdfast.lab.race.orders import Score, Trained
from holdfast.lab.race.result import Evaluation, Event, SwitchLateness
from holdfast.lab.switch_client import Report


class Record:
    def __init__(self) -> None:
        self.step_ms: list[float] = []
        """Of every step: from when the slowest rank was done with the one before until it was done with this one.

        Where ranks wait for each other that is the slowest rank's time. Where they do not, a rank that stands still
        through several steps of the others would else be counted several times."""
        self.last_turn_ms: list[float] = []
        self.evaluations: list[Evaluation] = []
        self.events: list[Event] = []
        self.delivered_ratio = 1.0
        self.incomplete_by_rank: dict[int, int] = {}
        self.explain: tuple[str, ...] = ()
        self.in_turn_s = 0.0
        """Since the turn began, by the runner's clock: where events within it belong."""
        self._lateness = Lateness()
        self._latest_us = 0.0
        self._lost: Counter[str] = Counter()
        self._has_switch = False

    @property
    def steps(self) -> int:
        return len(self.step_ms)

    @property
    def seconds(self) -> float:
        """Of training."""
        return sum(self.step_ms) / 1e3

    def note(self, what: str) -> None:
        self.events.append(Event(self.seconds + self.in_turn_s, what))

    def add_turn(self, by_rank: Mapping[int, Trained]) -> None:
        self.in_turn_s = 0.0
        told = by_rank.values()
        ends_ms = [max(ends) for ends in zip(*(accumulate(each.step_ms) for each in told), strict=True)]
        self.last_turn_ms = [end - before for before, end in pairwise([0.0, *ends_ms])]
        self.step_ms += self.last_turn_ms
        self.delivered_ratio = sum(each.delivered_ratio for each in told) / len(told)
        # As the rank sees it that missed most of them.
        accused = {rank for each in told for rank in each.incomplete_by_rank}
        self.incomplete_by_rank = {
            rank: max(each.incomplete_by_rank.get(rank, 0) for each in told) for rank in sorted(accused)
        }
        self.explain = by_rank[min(by_rank)].explain

    def add_partial_turn(self, step_ms: list[float]) -> None:
        """Of a turn that broke off, as one rank measured it."""
        self.last_turn_ms = step_ms
        self.step_ms += step_ms
        self.in_turn_s = 0.0

    def add_score(self, steps: int, score: Score, drift: float | None) -> None:
        """Of the model after so many steps."""
        self.evaluations.append(Evaluation(steps, sum(self.step_ms[:steps]) / 1e3, score.metric, score.loss, drift))

    def end_at(self, last: Evaluation) -> None:
        """Steps after it no longer count, nor what happened then. Shares, lateness and losses are told by the turn, so they are still of all of it."""
        self.step_ms = self.step_ms[: last.steps]
        self.evaluations = self.evaluations[: self.evaluations.index(last) + 1]
        self.events = [event for event in self.events if event.seconds <= last.seconds]

    def add_switch_report(self, report: Report) -> None:
        """Of the span of one turn."""
        self._has_switch = True
        self._lateness.add(report.lateness_counts)
        self._latest_us = max(self._latest_us, report.lateness_max_us)
        self._lost.update(report.losses)

    def lateness(self) -> SwitchLateness | None:
        """Over all turns; None where there is no switch."""
        if not self._has_switch:
            return None
        p50_us, p99_us, p999_us = (self._lateness.quantile_ms(share) * 1e3 for share in (0.50, 0.99, 0.999))
        return SwitchLateness(p50_us, p99_us, p999_us, self._latest_us, dict(self._lost))
