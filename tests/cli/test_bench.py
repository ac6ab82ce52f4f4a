"""`holdfast bench`: sizes as people write them, peers that exist, rows a program can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.cli.bench import parse_size
from holdfast.errors import ConfigError

ROW_KEYS = {
    "peer", "profile", "ranks", "bytes", "iterations", "p50_ms", "p95_ms", "p99_ms", "max_ms", "lower_bound_ms",
    "delivered_ratio", "wrong", "late_p999_ms",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [("8K", 8192), ("1M", 1 << 20), ("25M", 25 << 20), ("0.5m", 1 << 19), ("64", 64), ("1MiB", 1 << 20)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1T", "3", "1 M 2"])
def test_what_is_not_a_size_says_so(text: str) -> None:
    with pytest.raises(ConfigError, match="not a size"):
        parse_size(text)


def test_an_unknown_peer_is_named_before_anything_starts() -> None:
    result = CliRunner().invoke(app, ["bench", "allreduce", "--peers", "nccl"])
    assert isinstance(result.exception, ConfigError)
    assert "nccl" in str(result.exception)


def test_no_protection_must_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["bench", "allreduce", "--peers", "holdfast-insecure"])
    assert isinstance(result.exception, ConfigError)
    assert "--insecure" in str(result.exception)


def test_two_ranks_give_right_rows_for_every_peer(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    arguments = ["bench", "allreduce", "--ranks", "2", "--sizes", "8K,300K", "--peers", "gloo,holdfast-exact"]
    result = CliRunner().invoke(app, [*arguments, "--insecure", "--iterations", "5", "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    peers = ["holdfast", "holdfast-authenticated", "holdfast-insecure", "gloo", "holdfast-exact"]
    assert [(row["bytes"], row["peer"]) for row in rows] == [(size, peer) for size in (8192, 307_200) for peer in peers]
    for row in rows:
        assert set(row) == ROW_KEYS
        assert row["wrong"] == 0
        assert row["iterations"] == 5
        assert row["lower_bound_ms"] is None
        assert row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["delivered_ratio"] == 1.0 or row["peer"].startswith("holdfast")
    for peer in peers:
        assert peer in result.output
