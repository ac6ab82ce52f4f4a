"""What the system says: the limits of cgroups, key files, and constants that live elsewhere too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.doctor import system_checks
from holdfast.doctor.system_probe import cpu_quota, probe_clock, probe_system

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    (tmp_path / "fs" / "pod" / "box").mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=systemd:/elsewhere\n0::/pod/box\n")
    return tmp_path


def test_without_limits_there_is_no_quota(cgroups: Path) -> None:
    assert cpu_quota(cgroups / "fs", cgroups / "own") is None
    (cgroups / "fs" / "pod" / "cpu.max").write_text("max 100000\n")
    assert cpu_quota(cgroups / "fs", cgroups / "own") is None
    assert cpu_quota(cgroups / "nothing", cgroups / "nothing") is None


def test_the_tightest_limit_up_to_the_root_counts(cgroups: Path) -> None:
    (cgroups / "fs" / "cpu.max").write_text("400000 100000\n")
    (cgroups / "fs" / "pod" / "cpu.max").write_text("150000 100000\n")
    (cgroups / "fs" / "pod" / "box" / "cpu.max").write_text("300000 100000\n")
    assert cpu_quota(cgroups / "fs", cgroups / "own") == 1.5


def test_this_system_has_what_the_tests_run_on() -> None:
    facts = probe_system(None)
    assert re.match(r"\d+\.\d+", facts.kernel)
    assert facts.torch.version is not None
    assert facts.torch.has_gloo
    assert facts.num_cpus >= 1
    assert (facts.extension_error, facts.key_error) == ("", "")


@pytest.mark.parametrize(
    ("content", "error"),
    [("ab" * 32 + "\n", ""), ("ab" * 16, "16 bytes, not 32"), ("secret", "hexadecimal"), (None, "cannot be read")],
)
def test_a_key_file_is_read_as_joining_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, error: str
) -> None:
    from holdfast.doctor import system_probe

    monkeypatch.setattr(system_probe, "_ASK_TORCH", "raise SystemExit('asked elsewhere')")  # importing it takes seconds
    if content is not None:
        (tmp_path / "job.key").write_text(content)
    facts = probe_system(str(tmp_path / "job.key"))
    assert error in facts.key_error
    assert bool(facts.key_error) == bool(error)
    assert facts.torch.version is None
    assert facts.torch.error == "asked elsewhere"


def test_the_clock_is_watched() -> None:
    clock = probe_clock()
    assert clock.num_backward == 0
    assert 0 < clock.lateness_p50_us <= clock.lateness_p99_us  # a sleep never returns early
    assert clock.read_ns > 0


def test_the_torch_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"torch>={'.'.join(map(str, system_checks.OLDEST_TORCH))}" in project["dependencies"]
    pin = re.search(r"^torch==(\d+\.\d+)\.", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert pin is not None
    assert pin[1] == system_checks.TESTED_TORCH
