"""One cloud of two hosts for the tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.lab.cloud import Cloud
from holdfast.lab.profile import load_profile
from lab.lab_processes import MISSING


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[Cloud]:
    if MISSING:
        pytest.skip(f"no lab here: {MISSING}")
    with Cloud(2, "clean", seed=1, bits_per_s=100e6) as cloud:
        yield cloud


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Iterator[Cloud]:
    """The shared cloud, clean again afterwards."""
    yield shared_cloud
    shared_cloud.set_profile(load_profile("clean"))
