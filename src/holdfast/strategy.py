"""Which of the systems under this roof a model trains with, spelled out.

`holdfast.attach(model)` uses OptiReduce with everything as `Config` says. A strategy names what of it is to be otherwise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from holdfast.config import (
    EstimateName,
    HadamardName,
    HierarchyName,
    LateWireName,
    OverBudgetName,
    PackingName,
    RoundingName,
    WireName,
)


@dataclass(frozen=True)
class OptiReduce:
    """The all-reduce that ends by a deadline. Every field is that of `holdfast.Config`; None: as it says."""

    deadline_ms: float | None = None
    wire: WireName | None = None
    rounding: RoundingName | None = None
    late_wire: LateWireName | None = None
    packing: PackingName | None = None
    hadamard: HadamardName | None = None
    estimate: EstimateName | None = None
    loss_feedback: bool | None = None
    repair_grace_ratio: float | None = None
    compare_replicas: bool | None = None
    loss_budget: float | None = None
    over_budget: OverBudgetName | None = None
    most_skipped_steps: int | None = None
    uneven_shards: bool | None = None
    hierarchy: int | HierarchyName | None = None

    @classmethod
    def as_published(cls) -> OptiReduce:
        """As in the paper: what is lost counts as zero, nothing is repaired, and replicas are left to themselves."""
        return cls(
            estimate="zero_fill",
            packing="off",
            late_wire="float32",
            repair_grace_ratio=0.0,
            compare_replicas=False,
            loss_budget=1.0,
            uneven_shards=False,
        )

    def settings(self) -> dict[str, Any]:
        """What it says, as settings of `attach`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}
