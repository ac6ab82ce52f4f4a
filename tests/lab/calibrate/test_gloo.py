"""Small all-reduces between hosts are timed from the last to begin to the last to end."""

from __future__ import annotations

import os

from holdfast.lab.bench.row import Measured
from holdfast.lab.calibrate.gloo import allreduce, observe
from holdfast.lab.cloud import Cloud
from lab.lab_processes import marked_processes, needs_lab

MS = 1_000_000


def test_an_operation_lasts_from_the_last_to_begin_to_the_last_to_end() -> None:
    ranks = [Measured(began * MS, ended * MS, 1.0, {}, 0) for began, ended in [(10, 14), (12, 15), (11, 13)]]
    operation = observe(9 * MS, ranks)
    assert operation.took_ms == 3.0
    assert operation.woke_late_ms == 3.0


@needs_lab
def test_hosts_reduce_over_the_labs_network_and_leave_nothing(cloud: Cloud) -> None:
    already = set(marked_processes(os.getpid()))
    cloud.switch.reset()
    operations = allreduce(cloud, num_operations=10)
    assert len(operations) == 10
    # Two hosts: a scatter and a gather, each over a path of 0.25 ms.
    assert min(operation.took_ms for operation in operations) >= 2 * 0.25
    assert all(port.bytes_to_host > 10 * 8192 for port in cloud.switch.report().ports)
    assert set(marked_processes(os.getpid())) == already
