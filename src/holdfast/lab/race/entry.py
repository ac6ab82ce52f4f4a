"""One peer's entry in a race: its turns, with the network to itself, until it has arrived or cannot go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np

from holdfast.lab.cloud import Cloud
from holdfast.lab.quantile import quantile
from holdfast.lab.race.contender import TICK_S, BrokeOff, Contender
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.result import LOOPBACK, Run
from holdfast.lab.race.trouble import Trouble


@dataclass(frozen=True)
class Standing:
    """How far a peer is, for whoever watches. Figures are not numbers before there are any."""

    peer: str
    state: str
    finished: bool = False
    steps: int = 0
    seconds: float = 0.0
    metric: float = math.nan
    loss: float = math.nan
    step_ms: float = math.nan
    """Median of the last turn."""
    delivered_ratio: float = math.nan


class Entry:
    def __init__(self, plan: Plan, contender: Contender, cloud: Cloud | None, trouble: Trouble | None) -> None:
        self.contender = contender
        self.state = "ready"
        self.finished = False
        self._plan, self._cloud, self._trouble = plan, cloud, trouble
        self._turns = 0
        self._seconds_to_target: float | None = None

    def begin(self) -> None:
        """How good the model is before anything was learnt."""
        self._go_on(self.contender.evaluate)

    def take_turn(self) -> None:
        """Some steps and what became of the model. Afterwards the ranks of a finished entry are gone."""
        self._turns += 1
        self._go_on(self._train_and_evaluate)

    def standing(self) -> Standing:
        record = self.contender.record
        last = record.evaluations[-1] if record.evaluations else None
        return Standing(
            peer=self.contender.peer.name,
            state=self.state,
            finished=self.finished,
            steps=record.steps,
            seconds=record.seconds,
            metric=last.metric if last else math.nan,
            loss=last.loss if last else math.nan,
            step_ms=median(record.last_turn_ms) if record.last_turn_ms else math.nan,
            delivered_ratio=record.delivered_ratio,
        )

    def run(self) -> Run:
        plan, record = self._plan, self.contender.record
        evaluations = record.evaluations
        drifts = [each.drift for each in evaluations if each.drift is not None]
        return Run(
            task=plan.task.name,
            profile=LOOPBACK if plan.profile is None else plan.profile.name,
            hosts=plan.num_hosts,
            peer=self.contender.peer.name,
            seed=plan.seed,
            steps=record.steps,
            seconds_to_target=self._seconds_to_target,
            final_metric=evaluations[-1].metric if evaluations else math.nan,
            step_p50_ms=quantile(record.step_ms, 0.50),
            step_p99_ms=quantile(record.step_ms, 0.99),
            delivered_ratio=record.delivered_ratio,
            # A drift that is no number stays one: the model is lost.
            drift_max=float(np.max(drifts)) if drifts else math.nan,
            seconds=record.seconds,
            step_ms=tuple(record.step_ms),
            evaluations=tuple(evaluations),
            events=tuple(record.events),
            incomplete_by_rank=record.incomplete_by_rank,
            lateness=record.lateness(),
            explain=record.explain,
        )

    def _go_on(self, part: Callable[[], None]) -> None:
        record = self.contender.record
        self.state = "training"
        try:
            part()
        except BrokeOff as reason:
            self.state = f"broke off: {reason}"
            record.note(self.state)
        there = next((each for each in record.evaluations if self._plan.reached(each.metric)), None)
        if there is not None:
            record.end_at(there)
            self._seconds_to_target = there.seconds
            self._finish("reached the target")
        elif self.state != "training":
            self._finish(self.state)
        elif record.steps >= self._plan.max_steps:
            self._finish("out of steps")

    def _train_and_evaluate(self) -> None:
        task = self._plan.task
        count = min(task.steps_per_turn, self._plan.max_steps - self.contender.record.steps)
        with self._own_network():
            self.contender.train(count, task.steps_per_evaluation, self._meanwhile)
        self.contender.evaluate()

    @contextmanager
    def _own_network(self) -> Iterator[None]:
        """The switch's figures of this span are this peer's, and so is its trouble; what is random begins as for all."""
        if self._cloud is None:
            yield
            return
        if self._trouble is not None:
            self._trouble.begin_turn(self.contender.record.seconds)
        self._cloud.switch.reset()
        # Last, so that everybody's first step is as far from it: chance must not choose whom a freeze meets.
        self._cloud.switch.draw_anew(self._plan.turn_seed(self._turns))
        try:
            yield
        finally:
            self.contender.record.add_switch_report(self._cloud.switch.report())
            if self._trouble is not None:
                self._trouble.end_turn()

    def _meanwhile(self, waited_s: float) -> float:
        record = self.contender.record
        record.in_turn_s = waited_s
        now_s = record.seconds + waited_s
        next_s = None if self._trouble is None else self._trouble.advance(now_s)
        return TICK_S if next_s is None else max(0.0, next_s - now_s)

    def _finish(self, how: str) -> None:
        self.state = how
        self.finished = True
        self.contender.end()
