"""Packing pays where the bytes that it saves would take the network longer than it takes."""

from __future__ import annotations

import math

import pytest

from holdfast.control.packing import pays_below_bytes_per_s

SPEED = {"pack_bytes_per_s": 6e9, "unpack_bytes_per_s": 3e9, "saved_ratio": 0.1}


def test_it_pays_up_to_where_both_take_as_long() -> None:
    network = pays_below_bytes_per_s("auto", **SPEED)
    assert network == pytest.approx(200e6)
    num_bytes = 1e6
    saved_s = 0.1 * num_bytes / network
    assert num_bytes / 6e9 + num_bytes / 3e9 == pytest.approx(saved_s)


def test_the_user_has_the_last_word() -> None:
    assert pays_below_bytes_per_s("off", **SPEED) == 0
    assert pays_below_bytes_per_s("on", **SPEED) == math.inf


def test_what_saves_nothing_pays_nowhere() -> None:
    assert pays_below_bytes_per_s("auto", pack_bytes_per_s=6e9, unpack_bytes_per_s=3e9, saved_ratio=0) == 0
