"""A rank that gets no answer to an exchange of views, and whose objection may be lost, too."""

from __future__ import annotations

from holdfast.reduce.transpose import TransposeAllReduce


def miss_every_answer(reducer: TransposeAllReduce, *, objects: bool = False) -> None:
    views = reducer._views
    views.poll = lambda _operation: None  # type: ignore[method-assign]
    if not objects:
        views.object_to = lambda _operation: None  # type: ignore[method-assign]


def hear_answers_again(reducer: TransposeAllReduce) -> None:
    for name in ("poll", "object_to"):
        reducer._views.__dict__.pop(name, None)
