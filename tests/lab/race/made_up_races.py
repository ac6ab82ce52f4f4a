"""Races as they might have come out, seeded: what reports and pictures are tried on."""

from __future__ import annotations

import dataclasses
import math
import random

from holdfast.lab.quantile import quantile
from holdfast.lab.race.result import LOOPBACK, Evaluation, Event, RaceResult, Run, SwitchLateness

# Peer: (milliseconds of an ordinary step, share of stalls, milliseconds of a stall, delivered share).
PACES = {
    "gloo-cubic": (118.0, 0.21, 240.0, 1.0),
    "gloo-bbr": (58.0, 0.16, 215.0, 1.0),
    "gloo-tuned": (54.0, 0.09, 22.0, 1.0),
    "gloo-tuned-bf16": (38.0, 0.07, 21.0, 1.0),
    "holdfast": (41.0, 0.01, 9.0, 0.989742),
    "holdfast-exact": (49.0, 0.06, 18.0, 1.0),
}


def made_up_race(
    *peers: str, num_steps: int = 360, seed: int = 7, metric: str = "accuracy", target: float | None = None
) -> RaceResult:
    """Every peer trains as many steps; a lower share delivered costs some of the progress per step."""
    higher = metric == "accuracy"
    aim = target if target is not None else (0.95 if higher else 1.5)
    result = RaceResult(
        task="digits" if higher else "text",
        task_title="Digits, 8x8 images, 10 classes" if higher else "A small transformer on Python's standard library",
        metric=metric,
        higher_is_better=higher,
        target=aim,
        profile="lossy-1",
        profile_models="A clean network whose paths lose one packet in a hundred, each by itself: an overloaded "
        "software switch.",
        hosts=4,
        bits_per_s=250e6,
        seed=seed,
        parameters=1_070_090,
        runs=(),
    )
    runs = tuple(_run(result, peer, num_steps, random.Random(f"{seed} {peer}")) for peer in peers)
    return dataclasses.replace(result, runs=runs)


def without_training(peer: str, like: RaceResult) -> Run:
    """A peer that never came to its first step."""
    nan = math.nan
    return Run(like.task, like.profile, like.hosts, peer, like.seed, 0, None, nan, nan, nan, nan, nan, 0.0, (), ())


def on_loopback(result: RaceResult) -> RaceResult:
    runs = tuple(dataclasses.replace(run, profile=LOOPBACK, lateness=None) for run in result.runs)
    models = "Processes of one machine: nothing is lost, nothing is late."
    return dataclasses.replace(result, profile=LOOPBACK, profile_models=models, bits_per_s=None, runs=runs)


def _run(result: RaceResult, peer: str, num_steps: int, rng: random.Random) -> Run:
    ordinary_ms, stalls, stall_ms, delivered = PACES[peer]
    step_ms = [ordinary_ms * rng.lognormvariate(0, 0.05) for _ in range(num_steps)]
    step_ms = [step + stall_ms * rng.expovariate(1.0) * (rng.random() < stalls) for step in step_ms]
    evaluations, seconds, drift = [], 0.0, 0.0
    for step, milliseconds in enumerate(step_ms, start=1):
        seconds += milliseconds / 1e3
        if step % max(1, num_steps // 30) == 0:
            progress = 1 - math.exp(-4.5 * delivered**2 * step / num_steps)
            drift = abs(rng.gauss(0, 2e-4)) if delivered < 1 else 0.0
            loss = 2.3 - 2.1 * progress + rng.gauss(0, 0.01)
            metric = 0.1 + 0.88 * progress + rng.gauss(0, 0.003) if result.higher_is_better else loss
            evaluations.append(Evaluation(step, seconds, metric, loss, drift))
    arrived = next((point.seconds for point in evaluations if result.reached(point.metric)), None)
    late_us = (24.0, 180.0 * rng.uniform(0.8, 1.3), 700.0 * rng.uniform(0.7, 1.4), 1900.0 * rng.uniform(0.8, 2))
    packets = int(num_steps * 5600)
    is_holdfast = peer.startswith("holdfast")
    events = [Event(seconds * 0.45, "host 2's card at a quarter of its rate")]
    if is_holdfast:
        events.append(Event(seconds * 0.12, "deadline measured: an all-reduce ends within 96 ms"))
    return Run(
        task=result.task,
        profile=result.profile,
        hosts=result.hosts,
        peer=peer,
        seed=result.seed,
        steps=num_steps,
        seconds_to_target=arrived,
        final_metric=evaluations[-1].metric,
        step_p50_ms=quantile(step_ms, 0.5),
        step_p99_ms=quantile(step_ms, 0.99),
        delivered_ratio=delivered,
        drift_max=max(point.drift for point in evaluations),
        seconds=seconds,
        step_ms=tuple(step_ms),
        evaluations=tuple(evaluations),
        events=tuple(events),
        incomplete_by_rank={rank: rng.randint(20, 60) + 150 * (rank == 2) for rank in range(4)} if is_holdfast else {},
        lateness=SwitchLateness(*late_us, losses={"random_loss": packets // 100, "port_queue": rng.randint(0, 90)}),
        explain=(
            "rank 0 of 4 at 10.0.0.1 port 38762, encrypted",
            "bound: t_B 48.0 ms a stage of 400,000 bytes: 95 % of 160 warm-up stages took 48.0 ms or less (rank 2)",
            "datagrams: 1472 bytes, the smallest path MTU of the job",
            "rank 1: alive, round trip 0.41 ms, at most 212 KiB in flight, 5204 of 518833 lost",
        )
        if is_holdfast
        else (),
    )
