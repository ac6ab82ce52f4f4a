"""`holdfast doctor`: what it prints, in which order, and its exit code."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from holdfast.cli.command import app
from holdfast.cli.doctor import parse_peer, print_findings
from holdfast.doctor.finding import Finding, advice, ok, problem
from holdfast.errors import ConfigError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "doctor.md"
LONG = "sudo sysctl -w net.core.rmem_max=8388608 " + "and-so-on " * 12
FINDINGS = [
    ok("kernel", "Linux 6.1 [bold]"),
    advice("receive_buffer", "208 KiB granted " * 8, "peers keep less in flight", LONG.strip()),
    problem("ports", "29600 is taken", "a rank cannot join", "ss -ulpn", "export HOLDFAST_PORT=29700"),
]


@pytest.fixture
def quick_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch takes seconds and is tested with the probe; here only the answer matters."""
    from holdfast.doctor import system_probe

    answer = """import json; print(json.dumps(["2.13.0", True]))"""
    monkeypatch.setattr(system_probe, "_ASK_TORCH", answer)
    monkeypatch.delenv("MASTER_ADDR", raising=False)


def invoke(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def printed(width: int, findings: list[Finding]) -> str:
    out = io.StringIO()
    print_findings(Console(file=out, width=width), findings)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 140])
def test_lines_to_copy_are_whole_however_narrow_the_terminal(width: int) -> None:
    lines = printed(width, FINDINGS).splitlines()
    assert f"    {LONG.strip()}" in lines
    others = [line for line in lines if not line.startswith("    ")]
    assert max(map(len, others)) <= width


def test_what_needs_action_comes_first() -> None:
    text = printed(80, FINDINGS)
    places = [
        text.index(word) for word in ("PROBLEM  ports", "ADVICE  receive_buffer", "kernel", "1 problem, 1 advice")
    ]
    assert places == sorted(places)
    assert "will not run" in text


def test_brackets_are_text_and_not_markup() -> None:
    assert "Linux 6.1 [bold]" in printed(80, FINDINGS)


def test_when_all_is_well_it_says_so() -> None:
    assert "All is well. 0 problems, 0 advice, 1 ok." in printed(80, FINDINGS[:1])


@pytest.mark.usefixtures("quick_torch")
def test_json_has_the_documented_fields() -> None:
    code, document = invoke("--ranks", "1")
    assert code == (1 if document["status"] == "problem" else 0)
    assert list(document) == ["schema", "holdfast", "status", "findings", "facts"]
    page = PAGE.read_text()
    for finding in document["findings"]:
        assert list(finding) == ["check", "status", "found", "consequence", "to_do"]
        assert f"`{finding['check']}`" in page
        assert finding["status"] in ("ok", "advice", "problem")
    assert [name for name in [*document, *document["findings"][0]] if f"`{name}`" not in page] == []


@pytest.mark.usefixtures("quick_torch")
def test_a_taken_port_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HOLDFAST_PORT", str(holder.getsockname()[1]))
        code, document = invoke()
    assert code == 1
    assert document["findings"][0]["check"] == "ports"
    assert document["status"] == "problem"


@pytest.mark.usefixtures("quick_torch")
def test_an_unresolvable_master_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    code, document = invoke()
    assert code == 1
    problems = [finding for finding in document["findings"] if finding["status"] == "problem"]
    assert {finding["check"] for finding in problems} == {"interface", "route"}


@pytest.mark.usefixtures("quick_torch")
def test_it_works_where_the_native_module_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdfast._native", None)  # importing it is an ImportError from here on
    code, document = invoke()
    assert code == 1
    assert document["findings"][0]["check"] == "extension"
    assert document["facts"]["network"] is None


@pytest.mark.usefixtures("quick_torch")
def test_the_table_comes_without_json() -> None:
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"})
    assert re.search(r"^ok  interface +127\.0\.0\.1 on lo", result.stdout, re.MULTILINE)


def test_help_has_an_example() -> None:
    assert "Example: holdfast doctor" in CliRunner().invoke(app, ["doctor", "--help"], env={"COLUMNS": "120"}).stdout


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.2", "10.0.0.2", None),
        ("node2:29600", "node2", 29_600),
        ("fd00::2", "fd00::2", None),
        ("[fd00::2]", "fd00::2", None),
        ("[fd00::2]:29600", "fd00::2", 29_600),
    ],
)
def test_a_peer_is_a_host_with_or_without_a_port(text: str, host: str, port: int | None) -> None:
    peer = parse_peer(text)
    assert (peer.host, peer.port) == (host, port)
    assert parse_peer(str(peer)) == peer


@pytest.mark.parametrize("text", ["", ":29600", "node2:", "node2:port", "node2:0", "node2:65536", "[]"])
def test_what_is_no_peer_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a peer"):
        parse_peer(text)
