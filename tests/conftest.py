"""Fixtures for tests that run real ranks. The oracle of a test lives in the test; the processes live in `rank_processes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_STARTING_PROCESSES = (
    "test_bench.py",
    "test_cloud.py",
    "test_kill.py",
    "test_lab.py",
    "test_grid.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes share one worker: side by side they would fight for the cores and measure each other.

    Whole programs whose pace nobody looks at are a group of their own ("programs"), so that the other worker has as much
    to do; being the next largest it comes first there, while the ranks of `bridge` have time enough for anything.
    """
    for item in items:
        starts_ranks = {"run_ranks", "start_ranks", "rank_server"} & set(getattr(item, "fixturenames", ()))
        of_the_lab = {"cloud", "shared_cloud"} & set(getattr(item, "fixturenames", ()))
        if starts_ranks or of_the_lab or item.path.name in _STARTING_PROCESSES:
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(scope="session")
def rank_server() -> Any:
    from rank_processes import RankServer  # loads torch, which most tests do not need

    return RankServer()


@pytest.fixture
def run_ranks(rank_server: Any) -> Callable[..., list[Any]]:
    """`run_ranks(function, num_ranks, *args, timeout_s=60, group=False)`: every rank's result, by rank."""
    return rank_server.run


@pytest.fixture
def start_ranks(rank_server: Any) -> Callable[..., Any]:
    """Like `run_ranks`, but gives the running processes, for tests that stop, kill or delay some of them."""
    return rank_server.start


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    # All ranks of a test are on one host; what most tests are about is the network.
    monkeypatch.setenv("HOLDFAST_SHARED_MEMORY", "false")
