"""Profile files: what each stage of a real pipeline costs, as JSON.

    {"format": "holdfast-profile", "version": 1, "tick_ns": 1000,
     "stages": [{"forward": 59900, "input_grad": 84100, "weight_grad": 57000, "optimizer": 90000, "transfer": 800,
                 "activation": 210, "weight_stash": 160, "state": 1800, "memory_limit": 16000}, ...]}

Fields are those of `StageCost`; times in ticks of `tick_ns`, memory in any one unit. A single entry stands for all
stages. Measure the median of at least ten warm iterations (spec 5.2).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.errors import BrokenProfile
from holdfast.reroute.shape import StageCost

FORMAT = "holdfast-profile"
VERSION = 1
MAX_BYTES = 16 << 20
_FIELDS = {field.name for field in fields(StageCost)}
_REQUIRED = {"forward", "input_grad", "weight_grad", "optimizer"}


@dataclass(frozen=True)
class Profile:
    """Costs per stage and the length of a tick."""

    costs: tuple[StageCost, ...]
    tick_ns: int | None = None
    """Nanoseconds per tick; None if the times are only relative."""
    about: str = ""

    def for_stages(self, stages: int) -> tuple[StageCost, ...]:
        """One cost per stage; a profile of a single entry is repeated."""
        return self.costs * stages if len(self.costs) == 1 else self.costs

    def save(self, path: Path) -> None:
        document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "about": self.about}
        if self.tick_ns is not None:
            document["tick_ns"] = self.tick_ns
        document["stages"] = [asdict(cost) for cost in self.costs]
        path.write_text(json.dumps(document, indent=2) + "\n")


def shipped_profiles() -> list[str]:
    """Names that `load_profile` knows without a file."""
    folder = files("holdfast.reroute") / "profiles"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or a file."""
    if name_or_path in shipped_profiles():
        text = (files("holdfast.reroute") / "profiles" / f"{name_or_path}.json").read_text()
        return parse_profile(text, name_or_path)
    path = Path(name_or_path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BrokenProfile(
                f"{path} is larger than {MAX_BYTES >> 20} MB.", what_to_try="check that it is a profile."
            )
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenProfile(
            f"Cannot read the profile {name_or_path}: {error}.",
            what_to_try=f"give the path of a JSON file, or one of {', '.join(shipped_profiles())}.",
        ) from error
    return parse_profile(text, name_or_path)


def parse_profile(text: str, source: str) -> Profile:
    """A profile from its JSON text; `source` is named in errors."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenProfile(f"{source} is not JSON: {error}.", what_to_try="see the format in `profile`.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise BrokenProfile(
            f"{source} is not a profile of version {VERSION}.",
            what_to_try=f'start it with "format": "{FORMAT}", "version": {VERSION}.',
        )
    stages = document.get("stages")
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise BrokenProfile(f"{source} lists no stages.", what_to_try='give "stages": [{"forward": 1, ...}].')
    tick_ns = document.get("tick_ns")
    if tick_ns is not None and (isinstance(tick_ns, bool) or not isinstance(tick_ns, int) or tick_ns < 1):
        raise BrokenProfile(f"{source}: tick_ns is {tick_ns!r}.", what_to_try="give whole nanoseconds, 1 or more.")
    return Profile(
        tuple(_stage(stage, index, source) for index, stage in enumerate(stages)),
        tick_ns,
        str(document.get("about", "")),
    )


def _stage(stage: dict[str, Any], index: int, source: str) -> StageCost:
    unknown, missing = set(stage) - _FIELDS, _REQUIRED - set(stage)
    if unknown or missing:
        complaint = f"does not know {', '.join(sorted(unknown))}" if unknown else f"lacks {', '.join(sorted(missing))}"
        raise BrokenProfile(f"Stage {index} of {source} {complaint}.", what_to_try=f"use {', '.join(sorted(_FIELDS))}.")
    return StageCost(**stage)
