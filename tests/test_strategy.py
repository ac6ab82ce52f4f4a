"""A strategy says what is otherwise, in the words of `Config`, and nothing twice."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.bridge.ddp import _settings_of
from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.strategy import OptiReduce


def test_every_field_is_one_of_config() -> None:
    settings = {field.name for field in dataclasses.fields(Config)}
    assert {field.name for field in dataclasses.fields(OptiReduce)} <= settings


def test_by_default_it_says_nothing() -> None:
    assert OptiReduce().settings() == {}
    assert _settings_of(None, {"wire": "bf16"}) == {}


def test_what_it_says_is_a_configuration() -> None:
    said = OptiReduce(wire="bf16", compare_replicas=False).settings()
    assert said == {"wire": "bf16", "compare_replicas": False}
    assert Config(**OptiReduce.as_published().settings()).estimate == "zero_fill"


def test_a_setting_in_two_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="wire is given to attach and in its strategy"):
        _settings_of(OptiReduce(wire="bf16"), {"wire": "bf16"})
