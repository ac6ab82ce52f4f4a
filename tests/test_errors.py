"""Errors carry facts and what to try, and the tree in the docstring is the tree of the classes."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError, InvalidPlan, PeerDead

ALL_ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HoldfastError)]


def drawn_tree() -> dict[str, str | None]:
    """Every name in the docstring's drawing, and the name it hangs from."""
    parents: dict[str, str | None] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}(?P<indent>(?:│ {3}| {4}|├── |└── )*)(?P<name>[A-Z]\w+)(?: {2,}\S.*)?$", line)
        if found is None:
            continue
        depth = len(found["indent"]) // 4
        branch[depth:] = [found["name"]]
        parents[found["name"]] = branch[depth - 1] if depth else None
    return parents


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    real = {kind.__name__: kind.__base__.__name__ for kind in ALL_ERRORS if kind is not HoldfastError}
    assert drawn_tree() == {"HoldfastError": None, **real}


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_says_what_to_try(kind: type[HoldfastError]) -> None:
    assert kind.__doc__
    error = kind("it broke", what_to_try="mend it")
    assert str(error) == "it broke. Try: mend it"
    assert error.what_to_try == "mend it"


def test_facts_are_in_the_text_and_on_the_error() -> None:
    error = PeerDead("gone", peers=[2, 5], bucket=3, elapsed_ms=12.34, deadline_ms=50, what_to_try="look")
    assert str(error) == "gone [peer rank 2, rank 5; bucket 3; after 12.3 ms; deadline 50.0 ms] Try: look"
    assert (error.peers, error.bucket, error.elapsed_ms, error.deadline_ms) == ((2, 5), 3, 12.34, 50)


def test_facts_that_are_not_known_are_left_out() -> None:
    error = HoldfastError("it broke")
    assert str(error) == "it broke"
    assert (error.peers, error.bucket, error.elapsed_ms, error.deadline_ms) == ((), None, None, None)


@pytest.mark.parametrize(
    "error",
    [
        PeerDead("gone", peers=[1], bucket=0, elapsed_ms=1.0, deadline_ms=2.0, what_to_try="look"),
        InvalidPlan("bad", what_to_try="another", violations=["a", "b"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: Any) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
