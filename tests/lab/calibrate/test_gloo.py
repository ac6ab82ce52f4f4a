"""Small all-reduces between hosts are timed from the last to begin to the last to end."""

from __future__ import annotations

import os
import socket
import time

import pytest

from holdfast.lab.calibrate.gloo import ANSWER, QUESTION, allreduce, operate
from holdfast.lab.cloud import Cloud
from lab.lab_processes import marked_processes, needs_lab


def test_an_operation_lasts_from_the_last_to_begin_to_the_last_to_end() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    now_ns = time.monotonic_ns()
    for (_, rank), (began_ms, ended_ms) in zip(pairs, [(10, 14), (12, 15), (11, 13)], strict=True):
        rank.sendall(ANSWER.pack(now_ns + began_ms * 1_000_000, now_ns + ended_ms * 1_000_000))
    try:
        operation = operate([lab for lab, _ in pairs])
        (told,) = {rank.recv(QUESTION.size) for _, rank in pairs}  # one time to begin, for all
        (begin_ns,) = QUESTION.unpack(told)
        assert operation.took_ms == 3.0
        assert operation.woke_late_ms == pytest.approx(12 - (begin_ns - now_ns) / 1e6)
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_a_rank_that_ended_is_noticed() -> None:
    lab, rank = socket.socketpair()
    rank.close()
    with lab, pytest.raises(OSError, match=r"ended|Broken pipe"):
        operate([lab])


@needs_lab
def test_hosts_reduce_over_the_labs_network_and_leave_nothing(cloud: Cloud) -> None:
    already = set(marked_processes(os.getpid()))
    cloud.switch.reset()
    operations = allreduce(cloud, num_operations=10)
    assert len(operations) == 10
    assert (
        min(operation.took_ms for operation in operations) >= 2 * 0.1
    )  # two hosts: a scatter and a gather, each over a path of 0.1 ms
    assert all(port.bytes_to_host > 10 * 8192 for port in cloud.switch.report().ports)
    assert set(marked_processes(os.getpid())) == already
