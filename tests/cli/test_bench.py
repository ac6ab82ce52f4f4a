"""`holdfast bench`: sizes as people write them, peers that exist, rows a program can read."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from lab.lab_processes import needs_lab
from typer.testing import CliRunner

from holdfast.cli.bench import chosen_peers, parse_size
from holdfast.cli.bench_table import best_rival, share
from holdfast.cli.command import app
from holdfast.errors import ConfigError
from holdfast.lab.bench.row import Operation, Row, Setting, Tally, summarise
from holdfast.lab.peer import peer_named

ROW_KEYS = {
    "peer", "profile", "ranks", "bytes", "iterations", "seed", "congestion_control", "rto_min_ms", "p50_ms", "p95_ms",
    "p99_ms", "max_ms", "lower_bound_ms", "capacity_bound_p50_ms", "capacity_bound_p99_ms", "deadline_ms", "delivered_ratio", "wrong",
    "lost_packets", "late_p99_ms", "late_p999_ms", "woke_late_p99_ms", "attempts", "noisy", "frozen_operations", "frozen_p50_ms",
    "frozen_p99_ms", "frozen_delivered_ratio", "unfrozen_delivered_ratio", "sent_packets", "stage_ends",
    "stage_over_bound_p999_ms", "stage_over_bound_max_ms", "late_ratio", "narrow_ratio", "stolen_ratio",
}  # fmt: skip
LAB = ["bench", "allreduce", "--hosts", "2", "--profile", "clean", "--peers", "gloo-tuned", "--iterations", "2"]


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
    chosen = ["--ranks", "2", "--sizes", "8K,300K", "--peers", "gloo,holdfast-exact,holdfast-bf16,holdfast-shared"]
    result = CliRunner().invoke(
        app, ["bench", "allreduce", *chosen, "--insecure", "--iterations", "5", "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    peers = ["holdfast", "holdfast-authenticated", "holdfast-insecure", "gloo", "holdfast-exact", "holdfast-bf16"]
    peers.append("holdfast-shared")
    assert [(row["bytes"], row["peer"]) for row in rows] == [(size, peer) for size in (8192, 307_200) for peer in peers]
    for row in rows:
        assert set(row) == ROW_KEYS
        assert row["wrong"] == 0
        assert row["iterations"] == 5
        assert row["lower_bound_ms"] is None
        assert row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["delivered_ratio"] == 1.0 or row["peer"].startswith("holdfast")
        bounded = row["peer"].startswith("holdfast") and row["peer"] not in ("holdfast-exact", "holdfast-shared")
        assert (row["stage_over_bound_p999_ms"] is not None) == (row["late_ratio"] is not None) == bounded
        assert sum(row["stage_ends"].values()) == pytest.approx(1.0 if bounded else 0.0)
    for peer in peers:
        assert peer in result.output


def test_the_slowest_operation_is_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "traces"
    chosen = ["--ranks", "3", "--sizes", "8K", "--peers", "gloo", "--iterations", "4", "--trace-slowest", str(folder)]
    result = CliRunner().invoke(app, ["bench", "allreduce", *chosen])
    assert result.exit_code == 0, result.output
    peers = ("holdfast", "holdfast-authenticated")
    assert {file.name for file in folder.iterdir()} == {
        f"loopback-8192-{peer}.{kind}" for peer in peers for kind in ("txt", "svg")
    }
    for peer in peers:
        text = (folder / f"loopback-8192-{peer}.txt").read_text()
        assert text.startswith(f"{peer}, loopback, 8,192 bytes: the slowest of 4 operations, ")
        for rank in range(3):
            assert f"as rank {rank} of 3 saw it" in text
        assert len(set(re.findall(r"^operation (\d+) ", text, re.MULTILINE))) == 1, "all speak of the same one"
        picture = ElementTree.parse(folder / f"loopback-8192-{peer}.svg").getroot()
        rows = [each.text for each in picture.iter() if (each.text or "").startswith("from rank ")]
        assert len(rows) == 3 * 2 * 2


@pytest.mark.parametrize(
    ("peers", "in_lab", "names"),
    [
        (None, True, "holdfast,holdfast-bf16,holdfast-exact,gloo-cubic,gloo-bbr,gloo-tuned"),
        (None, False, "holdfast,holdfast-authenticated,holdfast-bf16,holdfast-exact,gloo"),
        ("gloo-tuned", True, "holdfast,gloo-tuned"),
        ("gloo", False, "holdfast,holdfast-authenticated,gloo"),
    ],
)
def test_every_table_has_the_whole_family_unless_told_otherwise(peers: str | None, in_lab: bool, names: str) -> None:
    chosen = chosen_peers(peers, insecure=False, in_lab=in_lab)
    assert [peer.name for peer in chosen] == names.split(",")


def test_hosts_of_the_lab_share_no_memory() -> None:
    with pytest.raises(ConfigError, match="share no memory"):
        chosen_peers("holdfast-shared", insecure=False, in_lab=True)


def test_tcp_settings_need_a_lab() -> None:
    result = CliRunner().invoke(app, ["bench", "allreduce", "--peers", "gloo-tuned"])
    assert isinstance(result.exception, ConfigError)
    assert "--profile" in str(result.exception)


@needs_lab
def test_an_interrupted_grid_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    whole = [*LAB, "--sizes", "8K,20K", "--json", str(file)]
    result = CliRunner().invoke(app, whole)
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    assert [(row["bytes"], row["peer"]) for row in rows] == [
        (size, peer) for size in (8192, 20_480) for peer in ("holdfast", "gloo-tuned")
    ]
    assert "bbr 5 ms" in result.output
    rows = [{**row, "noisy": False} for row in rows]  # else a busy machine's are measured again
    file.write_text(json.dumps(rows[:2]))
    result = CliRunner().invoke(app, [*whole, "--resume"])
    assert result.exit_code == 0, result.output
    again = json.loads(file.read_text())
    assert again[:2] == rows[:2], "what was measured stays"
    assert [row["bytes"] for row in again[2:]] == [20_480, 20_480]
    result = CliRunner().invoke(app, [*whole, "--resume", "--seed", "3"])
    assert isinstance(result.exception, ConfigError)
    assert "seed 0" in str(result.exception)


def test_resume_wants_a_file_of_rows(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*LAB, "--resume"])
    assert "--json" in str(result.exception)
    file = tmp_path / "rows.json"
    file.write_text('[{"peer": "gloo"}]')
    result = CliRunner().invoke(app, [*LAB, "--resume", "--json", str(file)])
    assert isinstance(result.exception, ConfigError)
    assert str(file) in str(result.exception)


def _row(peer: str, p50_ms: float, p99_ms: float) -> Row:
    tally = Tally(operations=[Operation(p50_ms / 1e3, 1.0, 0, None)] * 98 + [Operation(p99_ms / 1e3, 1.0, 0, None)] * 2)
    return summarise(peer_named(peer), Setting("lossy-1", 4, 1 << 20, 0, None, 250e6), tally, 1)


def test_rivals_are_those_with_as_many_bytes() -> None:
    rows = [
        _row("holdfast", 50, 60), _row("gloo-cubic", 200, 400), _row("gloo-bbr", 70, 500), _row("gloo-tuned", 65, 80),
        _row("gloo-tuned-bf16", 33, 40),
    ]  # fmt: skip
    assert best_rival(rows[0], rows, ("gloo-cubic", "gloo-bbr"), "p99_ms") == pytest.approx(400)
    assert best_rival(rows[0], rows, ("gloo-cubic", "gloo-bbr"), "p50_ms") == pytest.approx(70)
    assert best_rival(rows[4], rows, ("gloo-tuned",), "p99_ms") == pytest.approx(40)
    assert best_rival(rows[4], rows, ("gloo-bbr",), "p99_ms") is None


@pytest.mark.parametrize(("ratio", "text"), [(1.0, "100%"), (0.999999, "99.999%"), (0.5, "50.000%")])
def test_a_loss_is_never_rounded_away(ratio: float, text: str) -> None:
    assert share(ratio) == text
