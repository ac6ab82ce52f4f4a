"""`holdfast lab`: what it prints and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab.lab_processes import needs_lab

from holdfast.lab import privilege

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
LIMIT_S = 60


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run([*HOLDFAST, *arguments], capture_output=True, text=True, timeout=LIMIT_S, env=environment)


@needs_lab
def test_a_run_prints_by_rank_and_ends_with_a_table_and_the_first_bad_code(tmp_path: Path) -> None:
    script = "echo hello from $RANK of $WORLD_SIZE; sleep 0.$((3 * RANK)); exit $((RANK * 3))"
    run = holdfast("lab", "run", "--hosts", "3", "--rate", "50", "--logs", str(tmp_path), "bash", "-c", script)
    assert run.returncode == 3, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"[{rank}] hello from {rank} of 3" for rank in range(3)]
    assert "3 hosts at 50 Mbit/s, profile clean, seed 0" in run.stderr
    rows = [line.split() for line in run.stderr.splitlines() if "10.77.0." in line]
    assert [row[:-1] for row in rows] == [
        ["0", "10.77.0.1", "done"],
        ["1", "10.77.0.2", "exit", "code", "3"],
        ["2", "10.77.0.3", "exit", "code", "6"],
    ]
    assert "the switch was late by p99" in run.stderr
    assert (tmp_path / "rank-2.log").read_text() == "hello from 2 of 3\n"


@needs_lab
def test_faults_and_the_time_limit_are_told(tmp_path: Path) -> None:
    fault = tmp_path / "own.toml"
    fault.write_text("models = 'x'\n[[faults]]\nkind = 'kill'\nhost = 'last'\nat_s = 0.0\n")
    run = holdfast("lab", "run", "--hosts", "2", "--fault", str(fault), "--time-limit", "0.5", "--", "sleep", "60")
    assert run.returncode == 124, run.stderr
    assert "lab: will kill on host 1 at 0.00 s" in run.stderr
    assert "ended by SIGKILL" in run.stderr
    assert "out of time" in run.stderr


def test_profiles_are_listed_with_what_they_model_and_promise() -> None:
    listing = json.loads(holdfast("lab", "profiles", "--json").stdout)
    lossy = next(profile for profile in listing["profiles"] if profile["name"] == "lossy-1")
    assert lossy["promise"]["loss_ratio"] == 0.01
    assert {schedule["name"] for schedule in listing["schedules"]} >= {"c1", "c2"}
    table = holdfast("lab", "profiles").stdout
    for kind in ("profiles", "schedules", "faults"):
        for entry in listing[kind]:
            assert entry["name"] in table


def test_an_unknown_profile_is_one_sentence() -> None:
    run = holdfast("lab", "run", "--profile", "nowhere", "--", "true")
    assert run.returncode == 2
    assert run.stderr.startswith("BrokenLabFile: 'nowhere' is neither a shipped file nor one that can be read")
    assert "Traceback" not in run.stderr


@needs_lab
def test_a_reader_that_goes_away_ends_the_job_without_a_traceback() -> None:
    command = [*HOLDFAST, "lab", "run", "--hosts", "2", "--", "bash", "-c", "while :; do echo again; sleep 0.05; done"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline().endswith("again\n")
    run.stdout.close()
    assert run.wait(LIMIT_S) == 128 + signal.SIGPIPE
    assert run.stderr is not None
    with run.stderr:
        assert "Traceback" not in run.stderr.read()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = holdfast("lab", "run", "--logs", str(tmp_path / "file" / "logs"), "--", "true")
    assert run.returncode == 2
    assert run.stderr.startswith("ConfigError: cannot make the folder")


def powerless(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as the same user, but without the capabilities that make a network."""
    cap_net_admin, cap_sys_admin, pr_capbset_drop = 12, 21, 24
    code = (
        "import ctypes, os, sys\n"
        f"for capability in ({cap_net_admin}, {cap_sys_admin}): ctypes.CDLL(None).prctl({pr_capbset_drop}, capability)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, *HOLDFAST[1:], *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "NO_COLOR": "1", **environment}
    )


@needs_lab
def test_without_the_right_to_it_one_sentence_says_what_is_missing() -> None:
    run = powerless("lab", "run", "--", "true", **{privilege.TRIED: "1"})
    assert run.returncode == 2
    (sentence,) = run.stderr.strip().splitlines()
    assert sentence.startswith(
        "LabUnavailable: this process may not make a network namespace (Operation not permitted)"
    )
    assert "loopback" in sentence


@needs_lab
def test_where_the_kernel_lets_everybody_be_root_of_a_namespace_no_root_is_needed() -> None:
    become_root = [sys.executable, privilege.own_root.__file__, "true"]
    if subprocess.run(become_root, capture_output=True, timeout=LIMIT_S).returncode != 0:
        pytest.skip("this kernel gives no user namespaces to ordinary users")
    run = powerless("lab", "run", "--hosts", "2", "--", "bash", "-c", "echo $RANK; cat /proc/self/uid_map")
    assert run.returncode == 0, run.stderr
    assert {"[0] 0", "[1] 1"} <= set(run.stdout.splitlines())
