"""Scenario files: checked key by key, and the same fields on both sides."""

from __future__ import annotations

import pytest

from holdfast._native import sim_defaults
from holdfast.errors import ConfigError
from holdfast.sim import Scenario, load_scenario, parse_scenario, shipped_scenarios


def test_python_and_native_have_the_same_fields_and_defaults() -> None:
    assert Scenario().values() == sim_defaults()


def test_every_shipped_scenario_loads_and_says_what_it_models() -> None:
    for name in shipped_scenarios():
        assert load_scenario(name).about, name


def test_a_file_elsewhere_loads(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("loss_ratio = 0.5\ndeadline_ms = 7\n")
    scenario = load_scenario(str(path))
    assert (scenario.name, scenario.loss_ratio, scenario.deadline_ms) == ("mine", 0.5, 7.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("loss_rato = 0.5", "loss_rato"),
        ("loss_ratio = 'much'", "loss_ratio"),
        ("loss_ratio = 1.5", "loss_ratio"),
        ("dies = 1", "dies"),
        ("min_ranks = 4\nmax_ranks = 3", "ranks"),
        ("delay_us = -1", "delay_us"),
        ("mark_loss_ratio = 1.1", "mark_loss_ratio"),
        ("later_credit = 256", "credit"),
        ("later_credit_from = -1", "later_credit_from"),
        ("carriers_lost_first = -1", "carriers_lost_first"),
        ("protection = 2\nforge_ratio = 0.1", "insecure"),
        ("name = 'other'", "name"),
        ("this is not toml", "TOML"),
    ],
)
def test_a_bad_scenario_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_scenario(text, "bad")


def test_an_unknown_scenario_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="loss-5"):
        load_scenario("no-such-thing")
