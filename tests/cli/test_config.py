"""`holdfast config`: every field, its value and where it came from."""

from __future__ import annotations

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from holdfast.cli.command import app
from holdfast.config import Config


def test_every_field_is_listed_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DEADLINE_MS", "50")
    result = CliRunner().invoke(app, ["config", "--json"])
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert set(rows) == {field.name for field in dataclasses.fields(Config)}
    assert rows["deadline_ms"]["value"] == 50.0
    assert rows["deadline_ms"]["origin"] == "environment HOLDFAST_DEADLINE_MS"
    assert rows["port"]["origin"] == "default"
    assert all(row["documentation"] for row in rows.values())


def test_the_table_says_that_an_unset_deadline_is_measured() -> None:
    result = CliRunner().invoke(app, ["config"])
    assert "measured" in result.output
