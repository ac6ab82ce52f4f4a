"""Pipelines that route round dead workers: the planner (SlipStream / ReCycle).

Job: when a worker of a pipeline dies, plan how its data-parallel peers take over its micro-batches inside the bubbles
of the original schedule. Pure planning: nothing here sends, computes or waits.
In: shape, stage costs (a profile), memory limits, dead workers; or a trace of availability over time.
Out: schedules as data, their JSON, pictures and traces; a store of plans prepared ahead.
May import: `holdfast.errors`; OR-Tools (only `solver`) and plotly (only the pictures), both when first used.

Reading order: `shape` (the job), `routing`, `workload` (flat form), `timing` (orders to times), `bound`, `greedy`,
`solver`, `fusing`, `search` (all of them for one schedule), `planner` (the paper's steps), `normalise`, `store`;
`validator` stands apart; `document`, `action_text`, `perfetto`, `gantt` are ways out; `availability`, `policies`,
`replay`, `replay_picture` are the comparison over a trace.
"""

from holdfast.reroute.document import check_plan, plan_document, read_plan
from holdfast.reroute.normalise import Move, Normalisation, normalise
from holdfast.reroute.planner import Plan, plan
from holdfast.reroute.profile import Profile, load_profile
from holdfast.reroute.schedule import Operation, Schedule
from holdfast.reroute.shape import Job, Shape, StageCost, Worker, uniform_job
from holdfast.reroute.solver import Effort
from holdfast.reroute.store import Placement, PlanStore
from holdfast.reroute.validator import Violation, require_valid, violations

__all__ = [
    "Effort",
    "Job",
    "Move",
    "Normalisation",
    "Operation",
    "Placement",
    "Plan",
    "PlanStore",
    "Profile",
    "Schedule",
    "Shape",
    "StageCost",
    "Violation",
    "Worker",
    "check_plan",
    "load_profile",
    "normalise",
    "plan",
    "plan_document",
    "read_plan",
    "require_valid",
    "uniform_job",
    "violations",
]
