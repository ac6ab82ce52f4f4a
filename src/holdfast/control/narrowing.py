"""When what is late leaves in sixteen bits: how far behind the others a path must be."""

from __future__ import annotations

from holdfast.config import Config

BEHIND_RATIO = 0.2
"""Of all that a path has to carry in an operation. In a model of the ports a fifth to three tenths keep `shared-1.5` as it
is, whose bursts are over before a path is so far behind, and take most of what `shared-3` costs."""


def behind_ratio(config: Config) -> float:
    """0: no path ever is. When packets come decides who is behind, so with `deterministic` nobody is."""
    return 0.0 if _why_off(config) else BEHIND_RATIO


def _why_off(config: Config) -> str:
    off = {
        "late_wire": config.late_wire == "float32",
        "deterministic": config.deterministic,
        "wire": config.wire != "float32",
    }
    return ", ".join(name for name, is_off in off.items() if is_off)


def explain(config: Config, narrow_ratio: float) -> str:
    """`narrow_ratio`: of what has come so far."""
    if why := _why_off(config):
        return f"what comes too late is cut off in all its bits ({why})"
    return (
        f"on a path that lacks {BEHIND_RATIO:.0%} of what it has to carry, compared with the furthest, float32 leaves in "
        f"sixteen bits; of what came so far {narrow_ratio:.1%} did"
    )
