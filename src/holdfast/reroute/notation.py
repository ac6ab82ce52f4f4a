"""How people write dead workers and stage times on a command line."""

from __future__ import annotations

from holdfast.errors import TimesNotPositive, UnknownWorker
from holdfast.reroute.shape import StageCost, Worker

_ORDER = ("forward", "input_grad", "weight_grad", "optimizer", "transfer")
_LETTERS = {"F": "forward", "I": "input_grad", "W": "weight_grad", "O": "optimizer", "C": "transfer"}
_TRY_TIMES = "write F,I,W,O or F,I,W,O,transfer such as 10,11,9,8,1, or by name and stage: F=10/12/10/10,I=11,W=9,O=8."


def parse_workers(text: str) -> frozenset[Worker]:
    """`1:2,0:3` to workers; an empty text names none."""
    workers = set()
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        pipeline, colon, stage = part.partition(":")
        if not (colon and pipeline.strip().isdecimal() and stage.strip().isdecimal()):
            raise UnknownWorker(
                f"{part!r} is not a worker.", what_to_try="name dead workers as pipeline:stage from 0, such as 1:2,0:3."
            )
        workers.add(Worker(int(pipeline), int(stage)))
    return frozenset(workers)


def parse_times(text: str, stages: int) -> tuple[StageCost, ...]:
    """`1,1,1,3` or `F=10/12,I=11,W=9,O=8,C=1` to costs; what is left out keeps its default."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise TimesNotPositive("No times were given.", what_to_try=_TRY_TIMES)
    if any("=" in part for part in parts):
        named = dict(_named(part) for part in parts)
    elif 4 <= len(parts) <= len(_ORDER):
        named = dict(zip(_ORDER, parts, strict=False))
    else:
        raise TimesNotPositive(f"{text!r} has {len(parts)} times, not 4 or 5.", what_to_try=_TRY_TIMES)
    per_stage: list[dict[str, int]] = [{} for _ in range(stages)]
    for name, value in named.items():
        values = value.split("/")
        if len(values) not in (1, stages):
            raise TimesNotPositive(
                f"{name} has {len(values)} values for {stages} stages.", what_to_try="give one value, or one per stage."
            )
        for stage in range(stages):
            per_stage[stage][name] = _whole(name, values[stage % len(values)])
    return tuple(StageCost(**times) for times in per_stage)


def _named(part: str) -> tuple[str, str]:
    letter, equals, value = part.partition("=")
    name = _LETTERS.get(letter.strip().upper())
    if name is None or not equals:
        raise TimesNotPositive(f"{part!r} is not a time.", what_to_try=_TRY_TIMES)
    return name, value


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise TimesNotPositive(
            f"{name} is {text.strip()!r}, but the planner counts in whole ticks.",
            what_to_try="use a finer unit, for instance microseconds, and round.",
        ) from error
