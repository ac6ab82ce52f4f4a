"""Lateness adds up over spans: the quantiles are those of all packets together."""

from __future__ import annotations

import pytest

from holdfast.lab.lateness import Lateness


def test_quantiles_are_of_all_spans_together() -> None:
    lateness = Lateness()
    lateness.add([(10.0, 500), (100.0, 400)])
    lateness.add([(100.0, 98), (3_000.0, 2)])
    assert lateness.quantile_ms(0.5) == pytest.approx(0.01)
    assert lateness.quantile_ms(0.51) == pytest.approx(0.1)
    assert lateness.quantile_ms(0.998) == pytest.approx(0.1)
    assert lateness.quantile_ms(0.999) == pytest.approx(3.0)
    assert not lateness.trusted


def test_without_packets_nobody_was_late() -> None:
    assert Lateness().quantile_ms(0.999) == 0
    assert Lateness().trusted
