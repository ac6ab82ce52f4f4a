"""Sealing is really done and timed. How fast it is, is no test's business."""

from __future__ import annotations

import pytest

from holdfast import _native
from holdfast.doctor.facts import Rate
from holdfast.doctor.processor_probe import probe_processor


def test_both_kinds_of_protection_are_measured() -> None:
    facts = probe_processor(1_472)
    assert set(facts.rates) == {"encrypted", "authenticated"}
    assert all(rate.seal > 0 and rate.open > 0 for rate in facts.rates.values())
    assert facts.openssl.startswith("3.")
    assert facts.datagram_bytes == 1_472


def test_what_the_kernels_use_the_cpu_has() -> None:
    facts = probe_processor(1_472)
    assert (facts.instruction_set == "avx2") == ({"avx2", "f16c"} <= set(facts.features))
    if facts.seals_with_vector_instructions:
        assert {"vaes", "vpclmulqdq"} <= set(facts.features)


def test_a_datagram_too_small_to_join_with_is_measured_as_the_smallest_that_can() -> None:
    assert probe_processor(40).datagram_bytes == 256


@pytest.mark.parametrize("size", [0, 64, 65_537])
def test_datagrams_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="datagram"):
        _native.sealing_rate(size, False, 0.0)


def test_sealing_and_opening_share_one_thread() -> None:
    assert Rate(4e9, 4e9).both == pytest.approx(2e9)
    assert Rate(3e9, 1.5e9).both == pytest.approx(1e9)
