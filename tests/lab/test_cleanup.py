"""Processes are known by their mark; only those whose lab is gone are ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.lab import cleanup
from holdfast.lab.marks import LAB, LabId


def test_a_lab_is_named_after_its_process() -> None:
    lab = LabId.of_this_process()
    assert LabId.parse(str(lab)) == lab
    assert not lab.is_gone()
    assert lab != LabId.of_this_process()


@pytest.mark.parametrize("text", ["", "1.2.3", "a.2.3.x", "1.2.3.4.5", "1.-2.3.x"])
def test_what_is_not_a_mark_is_not_read_as_one(text: str) -> None:
    assert LabId.parse(text) is None


def gone_lab() -> LabId:
    """The name of a lab whose process has ended: this one's number, but another start."""
    lab = LabId.of_this_process()
    return LabId(lab.process_namespace, lab.process, lab.started - 1, lab.unique)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process of a dead lab, one of a living lab, one of a lab in another container."""
    living, dead = LabId.of_this_process(), gone_lab()
    elsewhere = LabId(dead.process_namespace + 1, dead.process, dead.started, dead.unique)
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    processes = [
        subprocess.Popen(command, env={**os.environ, LAB: str(lab)}, stdout=subprocess.PIPE)
        for lab in (dead, living, elsewhere)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_clean_ends_orphans_and_nobody_else(sleepers: list[subprocess.Popen[bytes]]) -> None:
    dead, living, elsewhere = sleepers
    found = [leftover for leftover in cleanup.leftovers() if leftover.process in {s.pid for s in sleepers}]
    assert [leftover.process for leftover in found] == [dead.pid]
    assert "time.sleep(60)" in found[0].command
    assert cleanup.end([dead.pid], limit_s=10) == []
    assert dead.wait(10) == -9
    assert living.poll() is None
    assert elsewhere.poll() is None


def test_a_labs_own_processes_are_found(sleepers: list[subprocess.Popen[bytes]]) -> None:
    _, living, _ = sleepers
    lab = dict(_marks())[living.pid]
    assert cleanup.processes_of(lab) == [living.pid]
    assert cleanup.end_lab(lab, limit_s=10) == []
    assert living.wait(10) == -9


def _marks() -> Iterator[tuple[int, LabId]]:
    from holdfast.lab.marks import marked_processes

    return marked_processes()


def test_a_process_that_ended_is_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait(10)
    assert cleanup.end([process.pid]) == []
