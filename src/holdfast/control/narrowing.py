"""When what is late leaves in sixteen bits: how far behind the others a path must be."""

from __future__ import annotations

from collections import deque

from holdfast.config import Config

BEHIND_RATIO = 0.2
"""Of all that a path has to carry in an operation. In a model of the ports a fifth to three tenths keep `shared-1.5` as it
is, whose bursts are over before a path is so far behind, and take most of what `shared-3` costs. In races 0.15 and 0.25 were
no different."""
NARROW_SAVES_RATIO = 0.6
"""Of the bytes of a packed float32, in gradients that are spread like a bell (10.7 bits and 26.8)."""
REMEMBERED_OPERATIONS = 200


def behind_ratio(config: Config, *, packs: bool) -> float:
    """0: no path ever is. `packs`: there are networks on which packing pays."""
    return 0.0 if _why_off(config, packs=packs) else BEHIND_RATIO


def _why_off(config: Config, *, packs: bool) -> str:
    off = {
        "late_wire": config.late_wire == "float32",
        "deterministic": config.deterministic,  # when packets come decides who is behind
        "wire": config.wire != "float32",
        "packing": not packs,
        "credit": config.credit != 0,
    }
    return ", ".join(name for name, is_off in off.items() if is_off)


class Narrowed:
    """How much of the last operations came in sixteen bits."""

    def __init__(self) -> None:
        self._narrow_elements: deque[int] = deque(maxlen=REMEMBERED_OPERATIONS)

    def observe(self, narrow_elements: int) -> None:
        self._narrow_elements.append(narrow_elements)

    @property
    def lately(self) -> bool:
        return any(self._narrow_elements)


def explain(config: Config, narrow_ratio: float, *, packs: bool) -> str:
    """`narrow_ratio`: of what has come so far."""
    if why := _why_off(config, packs=packs):
        return f"what comes too late is cut off in all its bits ({why})"
    return (
        f"on a path that lacks {BEHIND_RATIO:.0%} of what it has to carry, beside the furthest or half of the other ranks, "
        f"float32 leaves in sixteen bits where packing pays; of what came so far {narrow_ratio:.1%} did"
    )
