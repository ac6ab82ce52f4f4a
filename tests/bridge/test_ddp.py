"""`holdfast.attach` on real DDP models: the same gradients as DDP's own, and replicas that stay equal."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ddp_models import (
    AMPLE,
    MixedDtypes,
    SharedAndFrozen,
    convolutional,
    digest_of,
    gradients_of,
    inputs_of,
    normalised,
    perceptron,
    wrapped,
)
from rank_processes import Member
from torch import nn

import holdfast


def compare_with_plain_ddp(member: Member, make: Callable[[], nn.Module], options: dict[str, Any]) -> list[str]:
    """The same steps by DDP alone and by Holdfast; also the number of buckets that went over Holdfast in each step."""
    plain, ours = wrapped(make, **options), wrapped(make, **options)
    # Buffers are averaged by Holdfast and taken from rank 0 by DDP, so gradients are compared from equal buffers.
    handle = holdfast.attach(ours, **AMPLE)
    digests = []
    for step in range(4):
        for model in (plain, ours):
            model.zero_grad()
            model(inputs_of(member.rank, step)).square().mean().backward()
        for reference, gradient in zip(gradients_of(plain), gradients_of(ours), strict=True):
            assert gradient.dtype == reference.dtype
            eps = torch.finfo(gradient.dtype).eps
            torch.testing.assert_close(gradient, reference, rtol=8 * eps, atol=8 * eps * float(reference.abs().max()))
        digests.append(digest_of(gradients_of(ours)))
        with torch.no_grad():
            for parameter in (*plain.parameters(), *ours.parameters()):
                if parameter.grad is not None:
                    parameter -= 0.05 * parameter.grad
        ours.load_state_dict(plain.state_dict())
    summary = handle.summary()
    assert summary.delivered_ratio == 1.0
    assert summary.exact_operations == 0
    handle.detach()
    return digests


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (perceptron, {}),
        (perceptron, {"bucket_cap_mb": 0.001}),
        (perceptron, {"gradient_as_bucket_view": True}),
        (perceptron, {"static_graph": True}),
        (perceptron, {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}),
        (normalised, {}),
        (normalised, {"broadcast_buffers": False}),
        (convolutional, {"gradient_as_bucket_view": True}),
        (MixedDtypes, {}),
        (SharedAndFrozen, {"bucket_cap_mb": 0.0005}),
    ],
    ids=lambda value: value.__name__ if callable(value) else ",".join(map(str, value)) or "plain",
)
def test_gradients_are_those_of_plain_ddp(run_ranks, make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    digests = run_ranks(compare_with_plain_ddp, 2, make, options, group=True)
    assert digests[0] == digests[1]


def count_buckets(member: Member) -> list[int]:
    model = wrapped(perceptron, bucket_cap_mb=0.001)
    handle = holdfast.attach(model, **AMPLE)
    counts = []
    for step in range(3):
        before = len(handle.outcomes())
        model(inputs_of(member.rank, step)).sum().backward()
        counts.append(len(handle.outcomes()) - before)
    handle.detach()
    return counts


def test_it_survives_ddp_rebuilding_its_buckets(run_ranks) -> None:
    first, second = run_ranks(count_buckets, 2, group=True)
    assert first == second
    assert first[-1] > 1, "a tiny bucket_cap_mb should have made several buckets"
    assert first[0] != first[-1], "DDP did not rebuild"


def accumulate(member: Member) -> None:
    plain, ours = wrapped(normalised), wrapped(normalised)
    handle = holdfast.attach(ours, **AMPLE)
    for round_number in range(3):
        for model in (plain, ours):
            model.zero_grad()
            with model.no_sync():
                for part in range(2):
                    model(inputs_of(member.rank, 10 * round_number + part)).sum().backward()
            before = len(handle.outcomes())
            model(inputs_of(member.rank, 10 * round_number + 2)).sum().backward()
        assert len(handle.outcomes()) - before == 1  # nothing was sent in no_sync
        for reference, gradient in zip(gradients_of(plain), gradients_of(ours), strict=True):
            torch.testing.assert_close(gradient, reference, rtol=1e-5, atol=1e-5)
        ours.load_state_dict(plain.state_dict())
    handle.detach()


def test_no_sync_accumulates_and_sends_nothing(run_ranks) -> None:
    run_ranks(accumulate, 2, group=True)


def train(member: Member, make: Callable[[], nn.Module], steps: int, settings: dict[str, Any]) -> tuple[str, str, int]:
    model = wrapped(make, bucket_cap_mb=0.002)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = holdfast.attach(model, optimizer, **settings)
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs_of(member.rank, step)).square().mean().backward()
        optimizer.step()
    handle._before_forward()  # the buffers' last operation
    parameters, buffers = digest_of(model.parameters()), digest_of(model.buffers())
    assert handle.summary().delivered_ratio == 1.0
    fetched = handle.synchronize().tensors_fetched
    handle.detach()
    return parameters, buffers, fetched


@pytest.mark.parametrize("make", [perceptron, normalised, MixedDtypes], ids=lambda make: make.__name__)
def test_thirty_steps_end_with_bit_identical_replicas(run_ranks, make: Callable[[], nn.Module]) -> None:
    results = run_ranks(train, 3, make, 30, AMPLE, group=True)
    assert results[0] == results[1] == results[2]
    assert results[0][2] == 0  # nothing to mend


def test_the_measured_bound_trains_as_well(run_ranks) -> None:
    settings = {"deadline_floor_ms": 20_000.0, "early_wait_floor_ms": 5_000.0, "join_timeout_s": 20.0}
    results = run_ranks(train, 2, normalised, 12, settings, group=True)
    assert results[0] == results[1]


def train_alone(member: Member) -> tuple[list[str], dict[str, Any], str]:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("holdfast").addHandler(handler)
    logging.getLogger("holdfast").setLevel(logging.INFO)
    model = wrapped(normalised)
    handle = holdfast.attach(model)
    for step in range(8):
        model.zero_grad()
        reference = torch.nn.utils.parameters_to_vector(
            torch.autograd.grad(model.module(inputs_of(0, step)).sum(), list(model.parameters()))
        )
        model(inputs_of(0, step)).sum().backward()
        torch.testing.assert_close(torch.nn.utils.parameters_to_vector(gradients_of(model)), reference)
    handle._before_forward()
    summary, explanation = handle.summary().as_dict(), handle.explain()
    assert handle.synchronize().tensors_fetched == 0
    handle.detach()
    return records, summary, explanation


def test_world_size_one_works_and_says_that_nothing_is_sent(run_ranks) -> None:
    ((records, summary, explanation),) = run_ranks(train_alone, 1, group=True)
    assert any("nothing will be sent" in record for record in records)
    assert "nothing is sent" in explanation
    assert summary["operations"] == 16  # buckets and buffers
    assert (summary["bytes_sent"], summary["bytes_received"]) == (0, 0)
    assert summary["delivered_ratio"] == 1.0


TRAINING_SCRIPT = """
import sys
import torch, torch.distributed as dist
import holdfast

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handle = holdfast.attach(model, optimizer)
for step in range(24):
    optimizer.zero_grad()
    model(torch.randn(4, 6)).square().mean().backward()
    optimizer.step()
handle.synchronize()
total = sum(parameter.double().sum().item() for parameter in model.parameters())
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    file.write(f"{handle.summary().operations} {total!r}")
# No detach: a script that just ends must end.
"""


@pytest.mark.timeout(100)
def test_one_line_in_a_script_under_plain_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, tmp_path]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert finished.returncode == 0, finished.stderr
    first, second = ((tmp_path / rank).read_text().split() for rank in ("0", "1"))
    assert first == second
    assert int(first[0]) >= 15
    # What was chosen is to be seen without any set-up of logging, once.
    assert finished.stderr.count("all ranks are on this host") == 1
    assert "warm-up stages took" in finished.stderr
    assert "nanobind: leaked" not in finished.stderr
