"""The prototype's table (spec section 10) and the speed of large plans, through the same script that prints them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bars() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "plan_bars.py"
    spec = importlib.util.spec_from_file_location("plan_bars", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_paper_example(bars: ModuleType) -> None:
    assert bars.paper()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_table_of_section_10(bars: ModuleType) -> None:
    assert bars.section10()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_24_workers_with_up_to_nine_failures(bars: ModuleType) -> None:
    assert bars.throughput()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_512_and_1536_workers(bars: ModuleType) -> None:
    assert bars.scale()
