"""Closed-form limits: what no plan can beat, known before any is made (spec 5.5, for uneven stages).

The busiest worker of stage s runs n_s = M + ceil(f_s M / (J - f_s)) micro-batches, hence

    work bound        T >= n_s (t_F + t_I + t_W) + t_O                          for every stage s

It can be tightened where a stage has too few forwards, or too little memory, to fill the time until its first
gradient comes back; the solver stops at the tightened one.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.reroute.shape import Job


@dataclass(frozen=True)
class Bounds:
    """Lower bounds in ticks; all but `work` hold only for the kind of schedule they name."""

    work: int
    """Staggered and decoupled: the busiest worker's operations and its optimizer step, the formula of 5.5."""
    staggered: int
    """The same, tightened by the round trip to the last stage and by memory."""
    decoupled: int
    """Decoupled, but all stages step together: stage s can only start after s forwards. Without the optimizer."""
    rerouted: int
    """Fused backward and all stages step together. Without the optimizer."""


def load(job: Job, stage: int, num_failed: int | None = None) -> int:
    """n_s: micro-batches of the busiest live worker of a stage with `num_failed` dead ones (default: the job's)."""
    lost = job.failures_per_stage[stage] if num_failed is None else num_failed
    moved = lost * job.shape.microbatches
    return job.shape.microbatches + -(-moved // (job.shape.pipelines - lost))


def is_hidden(job: Job) -> bool:
    """Whether 1F1B's own bubbles can hold all re-routed work: ceil(f_s M / (J - f_s)) <= S - 1 everywhere (5.5)."""
    microbatches, stages = job.shape.microbatches, job.shape.stages
    return all(load(job, stage) - microbatches <= stages - 1 for stage in range(stages))


def round_trip(job: Job, stage: int) -> int:
    """Ticks from the start of a forward at `stage` to the earliest start of the same micro-batch's input gradient."""
    costs = job.costs
    forwards = sum(cost.forward for cost in costs[stage:])
    backwards = sum(cost.input_grad for cost in costs[stage + 1 :])
    crossings = 2 * sum(cost.transfer for cost in costs[stage:-1])
    return forwards + backwards + crossings


def stage_work(job: Job, stage: int, num_failed: int | None = None) -> int:
    """The work bound of one stage: its busiest worker's operations and the optimizer step."""
    cost = job.costs[stage]
    return load(job, stage, num_failed) * cost.total + cost.optimizer


def stage_period(job: Job, stage: int, num_failed: int | None = None) -> int:
    """C(s, f) of spec 5.3: the shortest staggered period stage s allows with f dead workers."""
    cost = job.costs[stage]
    microbatches = load(job, stage, num_failed)
    away = round_trip(job, stage)
    fits = microbatches
    if cost.room is not None and cost.activation:
        fits = min(fits, cost.room // cost.activation)
    # Until the first input gradient is back there is nothing to run but forwards, as many as fit in memory.
    idle = max(0, away - fits * cost.forward)
    span = microbatches * cost.total + idle
    if cost.room:
        # Every micro-batch occupies memory for at least its round trip; all of them share `room`.
        kept = min(cost.activation, cost.weight_stash)  # a fused backward keeps the activation instead of the stash
        occupied = cost.activation * (away + cost.input_grad) + kept * cost.weight_grad
        span = max(span, -(-microbatches * occupied // cost.room))
    return span + cost.optimizer


def bounds(job: Job) -> Bounds:
    """All closed-form limits of a job."""
    stages = range(job.shape.stages)
    decoupled, rerouted = 0, 0
    for stage in stages:
        cost, above = job.costs[stage], job.costs[:stage]
        span = stage_period(job, stage) - cost.optimizer
        head = sum(before.forward + before.transfer for before in above)
        tail = sum(before.backward + before.transfer for before in above)
        decoupled = max(decoupled, head + span, head + _last_gradient(job, stage))
        rerouted = max(rerouted, head + load(job, stage) * cost.total + tail)
    return Bounds(
        work=max(stage_work(job, stage) for stage in stages),
        staggered=max(stage_period(job, stage) for stage in stages),
        decoupled=decoupled,
        rerouted=max(rerouted, decoupled),
    )


def _last_gradient(job: Job, stage: int) -> int:
    """All forwards of the stage, then the last one's way back to stage 0: the input gradients are a chain."""
    cost = job.costs[stage]
    back = sum(before.input_grad + before.transfer for before in job.costs[:stage])
    forwards = (load(job, stage) - 1) * cost.forward
    return forwards + round_trip(job, stage) + cost.input_grad + back + job.costs[0].weight_grad
