from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.race.palette import LIGHT
from holdfast.lab.race.picture import SIZE_PX, draw_picture
from holdfast.lab.race.result import RaceResult
from lab.race.made_up_races import PACES, made_up_race, on_loopback
from lab.race.test_report import HOSTILE, hostile, odd_race

pytest.importorskip("matplotlib", reason="the picture needs matplotlib")


def drawn(result: RaceResult, path: Path) -> Any:
    """The picture's pixels, after a look at its head."""
    from matplotlib.image import imread

    draw_picture(result, path)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", head[16:]) == SIZE_PX
    return (imread(path) * 255).round().astype(int)[:, :, :3]


def num_pixels(pixels: Any, colour: str) -> int:
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((pixels == wanted).all(axis=2).sum())


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_every_peer_is_drawn_on_both_sides(metric: str, tmp_path: Path) -> None:
    pixels = drawn(made_up_race("gloo-tuned", "holdfast", metric=metric), tmp_path / "race.png")
    middle = SIZE_PX[0] * 55 // 100
    for colour in LIGHT[:2]:
        assert num_pixels(pixels[:, :middle], colour) > 500
        assert num_pixels(pixels[:, middle:], colour) > 500


def test_a_race_without_a_step_has_frames_but_no_lines(tmp_path: Path) -> None:
    assert num_pixels(drawn(odd_race("nothing"), tmp_path / "race.png"), LIGHT[0]) == 0


def test_six_peers_and_many_steps(tmp_path: Path) -> None:
    drawn(made_up_race(*PACES, num_steps=5000), tmp_path / "race.png")


@pytest.mark.parametrize("case", ["nobody", "nothing", "no peer", "not a number", "one step"])
def test_odd_races_are_drawn_too(case: str, tmp_path: Path) -> None:
    drawn(odd_race(case), tmp_path / "race.png")


def test_dollars_and_braces_are_no_formula(tmp_path: Path) -> None:
    result = hostile(made_up_race("gloo-tuned", "holdfast", num_steps=60), peer="gloo-tuned")
    drawn(dataclasses.replace(on_loopback(result), task_title=f"{HOSTILE} $\\frac{{$ {{}}"), tmp_path / "race.png")
