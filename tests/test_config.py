"""Where a setting comes from, what is refused, and that every field explains itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Config, field_documentation, resolve
from holdfast.errors import ConfigError


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_nothing_has_to_be_set() -> None:
    resolved = resolve(environment={})
    assert resolved.config == Config()
    assert set(resolved.origins.values()) == {"default"}
    assert set(resolved.origins) == {field.name for field in dataclasses.fields(Config)}


def test_argument_beats_file_beats_environment_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("deadline_ms = 20\ncredit = 2\n")
    environment = {
        "HOLDFAST_CONFIG": str(file),
        "HOLDFAST_DEADLINE_MS": "30",
        "HOLDFAST_CREDIT": "3",
        "HOLDFAST_PORT": "4000",
    }
    resolved = resolve({"deadline_ms": 10}, environment)
    config, origins = resolved.config, resolved.origins
    assert (config.deadline_ms, origins["deadline_ms"]) == (10.0, "argument")
    assert (config.credit, origins["credit"]) == (2, f"file {file}")
    assert (config.port, origins["port"]) == (4000, "environment HOLDFAST_PORT")
    assert (config.heartbeat_ms, origins["heartbeat_ms"]) == (250.0, "default")


def test_a_file_in_the_working_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('protection = "authenticated"\n')
    assert resolve(environment={}).config.protection == "authenticated"


def test_the_named_file_is_taken_instead_of_the_one_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("credit = 1\n")
    config = resolve(environment={"HOLDFAST_CONFIG": str(tmp_path / "other.toml")}).config
    assert (config.port, config.credit) == (0, 1)


def test_the_process_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DEADLINE_MS", "12.5")
    assert resolve().config.deadline_ms == 12.5


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("deadline_ms", "12.5", 12.5),
        ("deadline_ms", "", None),
        ("warmup_operations", "7", 7),
        ("deterministic", "true", True),
        ("deterministic", "FALSE", False),
        ("deterministic", "1", True),
        ("segmentation", "0", False),
        ("protection", "authenticated", "authenticated"),
        ("wire", "bf16", "bf16"),
        ("rounding", "feedback", "feedback"),
        ("key_file", "/etc/job.key", "/etc/job.key"),
        ("interface", "", None),
        ("datagram_bytes", "1472", 1472),
    ],
)
def test_text_from_the_environment_gets_the_type_of_its_field(name: str, text: str, value: Any) -> None:
    got = getattr(resolve(environment={f"HOLDFAST_{name.upper()}": text}).config, name)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deadline_ms", "soon"),
        ("deadline_ms", True),
        ("deadline_ms", [1]),
        ("warmup_operations", "a few"),
        ("warmup_operations", 2.5),
        ("warmup_operations", "2.5"),
        ("deterministic", "perhaps"),
        ("deterministic", 2),
        ("port", None),
        ("protection", "rot13"),
        ("protection", None),
        ("wire", "int8"),
        ("wire", None),
        ("rounding", "nearest"),
        ("hadamard", True),
        ("hierarchy", "many"),
        ("hierarchy", 2.5),
        ("hierarchy", True),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_config_error_that_names_the_setting(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        resolve({name: value}, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"deadline_ms": 0},
        {"deadline_ms": -1},
        {"deadline_ms": float("nan")},
        {"deadline_ms": float("inf")},
        {"deadline_floor_ms": -1},
        {"exact_deadline_ms": 0},
        {"exact_deadline_ms": float("nan")},
        {"join_timeout_s": -1},
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 600, "silence_limit_ms": 1_000},
        {"warmup_operations": 0},
        {"warmup_operations": -1, "deadline_ms": 5},
        {"hierarchy": 1},
        {"hierarchy": -4},
        {"credit": 256},
        {"credit": -1},
        {"port": 65_536},
        {"packets_per_key": 0},
        {"packets_per_key": (1 << 23) + 1},
        {"datagram_bytes": 575},
        {"datagram_bytes": 16_321},
        {"receive_buffer_bytes": -1},
        {"send_buffer_bytes": -1},
        {"early_bytes_cap": -1},
        {"rounding": "feedback", "wire": "bf16", "hadamard": "on"},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings)).split("_")[0]):
        resolve(settings, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"warmup_operations": 0, "deadline_ms": 5},
        {"packets_per_key": 1 << 23},
        {"credit": 255},
        {"port": 65_535},
        {"datagram_bytes": 576},
        {"datagram_bytes": 16_320},
        {"heartbeat_ms": 500, "silence_limit_ms": 1_000},
        {"hierarchy": 2},
        {"hierarchy": "auto"},
        {"hadamard": "on", "wire": "bf16"},
        {"hadamard": "auto", "wire": "bf16", "rounding": "feedback"},  # is off then
        {"hadamard": "on", "rounding": "feedback"},  # nothing is rounded
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_are_allowed(settings: dict[str, Any]) -> None:
    resolve(settings, {})


def test_unknown_settings_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"argument.*dead_line.*holdfast config"):
        resolve({"dead_line": 1}, {})
    (tmp_path / "holdfast.toml").write_text("dead_line = 1\n")
    with pytest.raises(ConfigError, match=r"holdfast\.toml.*dead_line"):
        resolve({}, {})


def test_a_path_object_is_text_too(tmp_path: Path) -> None:
    assert resolve({"key_file": tmp_path / "job.key"}, {}).config.key_file == str(tmp_path / "job.key")


@pytest.mark.parametrize("content", ["deadline_ms = = 3", "deadline_ms = \xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        resolve({}, {"HOLDFAST_CONFIG": str(tmp_path / "bad.toml")})


def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_CONFIG"):
        resolve({}, {"HOLDFAST_CONFIG": str(tmp_path / "none.toml")})


def test_a_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().deadline_ms = 1  # type: ignore[misc]


def test_every_field_says_its_default_and_its_unit() -> None:
    texts = field_documentation()
    units = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "byte"}
    for field in dataclasses.fields(Config):
        assert "default" in texts[field.name].lower(), field.name
        for ending, unit in units.items():
            if field.name.endswith(ending):
                assert unit in texts[field.name].lower() or "payload" in texts[field.name], field.name


@pytest.mark.parametrize(
    "settings",
    [
        {"early_wait_least_ratio": 0},
        {"early_wait_most_ratio": 1.1},
        {"early_wait_least_ratio": 0.3, "early_wait_most_ratio": 0.2},
        {"early_wait_least_ratio": float("nan")},
    ],
    ids=str,
)
def test_limits_of_the_early_wait_must_leave_it_room(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="x cannot stay between"):
        resolve(settings, {})


@pytest.mark.parametrize(
    ("settings", "in_force"),
    [
        ({}, "auto"),
        ({"hadamard": "on"}, "on"),
        ({"hadamard": "off"}, "off"),
        ({"wire": "bf16"}, "auto"),
        ({"rounding": "feedback"}, "auto"),  # nothing is rounded
        ({"wire": "fp16", "rounding": "feedback"}, "off"),
    ],
    ids=str,
)
def test_hadamard_is_automatic_where_it_can_be(settings: dict[str, Any], in_force: str) -> None:
    assert resolve(settings, {}).config.hadamard_in_force == in_force
