from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import BrokenProfile, TimesNotPositive
from holdfast.reroute import Effort, Job, Profile, Shape, StageCost, load_profile, plan
from holdfast.reroute.profile import parse_profile, shipped_profiles


@pytest.mark.parametrize("name", shipped_profiles())
def test_shipped_profiles_can_be_planned(name: str) -> None:
    profile = load_profile(name)
    assert profile.about
    job = Job(Shape(4, 3, 4), profile.for_stages(4))
    assert plan(job.with_failed([job.shape.workers()[6]]), Effort(seconds=0)).staggered.period > 0


def test_a_profile_survives_saving(tmp_path: Path) -> None:
    profile = Profile((StageCost(forward=7, state=3, memory_limit=20), StageCost()), tick_ns=1000, about="two stages")
    profile.save(tmp_path / "profile.json")
    assert load_profile(str(tmp_path / "profile.json")) == profile


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "holdfast-profile", "version": 1}',
        '{"format": "holdfast-profile", "version": 1, "stages": []}',
        '{"format": "holdfast-profile", "version": 1, "stages": [{"forward": 1}]}',
        '{"format": "holdfast-profile", "version": 1, "stages": [1]}',
        '{"format": "holdfast-profile", "version": 9, "stages": [{}]}',
    ],
)
def test_broken_profiles_are_named(text: str) -> None:
    with pytest.raises(BrokenProfile, match="Try:"):
        parse_profile(text, "it")


def test_unknown_fields_and_bad_values_are_named() -> None:
    stage = {"forward": 1, "input_grad": 1, "weight_grad": 1, "optimizer": 1}
    good = {"format": "holdfast-profile", "version": 1, "stages": [stage]}
    parse_profile(json.dumps(good), "it")
    with pytest.raises(BrokenProfile, match="foward"):
        parse_profile(json.dumps(good | {"stages": [stage | {"foward": 1}]}), "it")
    with pytest.raises(BrokenProfile, match="tick_ns"):
        parse_profile(json.dumps(good | {"tick_ns": 0}), "it")
    with pytest.raises(TimesNotPositive):
        parse_profile(json.dumps(good | {"stages": [stage | {"forward": 0}]}), "it")


def test_a_missing_file_names_the_shipped_ones() -> None:
    with pytest.raises(BrokenProfile, match="paper"):
        load_profile("/nowhere/at/all.json")
