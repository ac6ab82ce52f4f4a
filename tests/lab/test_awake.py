"""Processors are asked to stay awake exactly as long as a lab runs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from holdfast.lab import cleanup
from holdfast.lab.awake import REQUEST, processors_awake
from holdfast.lab.cloud import Cloud
from lab.lab_processes import needs_lab


def _holders(path: Path, processes: list[int]) -> list[int]:
    return [
        process
        for process in processes
        for entry in Path(f"/proc/{process}/fd").iterdir()
        if entry.is_symlink() and os.readlink(entry) == str(path)
    ]


def test_no_latency_is_asked_for_while_the_file_is_open(tmp_path: Path) -> None:
    request = tmp_path / "latency"
    request.write_bytes(b"")
    with processors_awake(request) as awake:
        assert awake
        assert struct.unpack("i", request.read_bytes()) == (0,)
        assert _holders(request, [os.getpid()]) == [os.getpid()]
    assert _holders(request, [os.getpid()]) == []


def test_an_error_in_the_lab_ends_the_request(tmp_path: Path) -> None:
    request = tmp_path / "latency"
    request.write_bytes(b"")
    with pytest.raises(RuntimeError, match="of the lab"), processors_awake(request):
        raise RuntimeError("of the lab")
    assert _holders(request, [os.getpid()]) == []


def test_a_machine_without_the_file_is_left_alone(tmp_path: Path) -> None:
    with processors_awake(tmp_path / "none") as awake:
        assert not awake
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_refuses_is_no_error() -> None:
    with processors_awake(Path("/dev/full")) as awake:
        assert not awake


@needs_lab
@pytest.mark.skipif(not os.access(REQUEST, os.W_OK), reason="this kernel takes no such requests")
def test_the_switch_of_a_lab_asks() -> None:
    with Cloud(2) as cloud:
        assert len(_holders(REQUEST, cleanup.processes_of(cloud.lab))) == 1
    assert _holders(REQUEST, cleanup.processes_of(cloud.lab)) == []
