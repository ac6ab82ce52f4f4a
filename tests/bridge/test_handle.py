"""What a handle tells and does: outcomes, summary, explanation, state, synchronize."""

from __future__ import annotations

import gc
import json
import logging
import signal
import time

import pytest
import torch
from rank_processes import Member, left_behind
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.control.bound_margin import MOST_RATIO
from holdfast.errors import ConfigError, HandleClosed

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0}


def attached(
    member: Member, **settings: object
) -> tuple[DistributedDataParallel, torch.optim.Optimizer, holdfast.Handle]:
    torch.manual_seed(11)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, holdfast.attach(model, optimizer, **settings)


def step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))).square().mean().backward()
    optimizer.step()


def tell(member: Member) -> dict[str, object]:
    model, optimizer, handle = attached(member, warmup_operations=5)
    explanation_before = handle.explain()
    for number in range(6):
        step(model, optimizer, 10 * number + member.rank)
    handle._before_forward()
    outcomes, summary = handle.outcomes(), handle.summary()
    assert [outcome.operation for outcome in outcomes] == sorted(outcome.operation for outcome in outcomes)
    assert {outcome.bucket for outcome in outcomes} == {0, None}  # a bucket and the buffers
    told = {
        "outcomes": outcomes,
        "summary": summary.as_dict(),
        "before": explanation_before,
        "after": handle.explain(),
        "state": handle.state_dict(),
    }
    handle.detach()
    return told


def test_a_handle_tells_what_happened_and_why(run_ranks) -> None:
    for rank, told in enumerate(run_ranks(tell, 2, group=True)):
        summary = told["summary"]
        assert [outcome.rank for outcome in told["outcomes"]] == [rank] * 12
        assert f"as rank {rank} of 2 saw it" in told["outcomes"][-1].trace()
        assert summary["operations"] == len(told["outcomes"]) == 12
        assert summary["exact_operations"] == 9  # five of the bucket, and the buffers between them
        assert summary["elapsed_p50_ms"] <= summary["elapsed_p99_ms"] <= summary["elapsed_max_ms"]
        assert summary["bytes_sent"] > 0
        assert summary["bytes_received"] > 0
        assert json.loads(json.dumps(summary))["operations"] == 12
        assert f"rank {rank} of 2 at 127.0.0.1 port" in told["before"]
        assert "encrypted" in told["before"]
        assert "being measured; 5 operations on the largest bucket run exactly" in told["before"]
        for line in ("bound: ", "early end: ", "incast: ", "rate: "):
            assert f"\n{line}" in told["after"]
        for meant in ("lasts longer than t_B", "t_C, what the stage usually takes", "credit 1 of 1 senders"):
            assert meant in told["after"]
        assert "sent to as fast as its receive buffer allows" in told["after"]
        assert "will be t_B, the longest that a stage may last" in told["before"]
        assert "all until the bound is known" in told["before"]
        assert "warm-up stages took" in told["after"]
        assert f"rank {1 - rank}: alive" in told["after"]
        assert "averaged with the gradients" in told["after"]
        assert told["state"]["version"] == 2
        assert 0 < summary["deadline_ms"] <= MOST_RATIO * 2 * told["state"]["stage_ms"]
        assert told["state"]["num_bytes"] > 0


def load(member: Member, state: dict[str, object]) -> tuple[bool, float]:
    model, optimizer, handle = attached(member)
    handle.load_state_dict(state)
    step(model, optimizer, member.rank)
    outcome = handle.outcomes()[0]
    for bad in ({}, {"version": 1, "deadline_ms": 5.0}):
        with pytest.raises(ConfigError, match="version"):
            handle.load_state_dict(bad)
    handle.detach()
    return outcome.exact, outcome.deadline_ms


def test_a_loaded_bound_skips_the_warm_up(run_ranks) -> None:
    assert run_ranks(load, 2, {"version": 2, "stage_ms": 4_500.0, "num_bytes": 0}, group=True) == [(False, 9_000.0)] * 2


def mend(member: Member) -> tuple[int, int, list[float]]:
    model, optimizer, handle = attached(member, **AMPLE)
    step(model, optimizer, member.rank)
    assert handle.synchronize().tensors_fetched == 0
    if member.rank == 1:  # a parameter, a counter and a moment go astray
        with torch.no_grad():
            model.module[0].weight[0, 0] += 1
            model.module[1].num_batches_tracked += 5
            optimizer.state[model.module[2].bias]["exp_avg"] += 1
    fetched = handle.synchronize().tensors_fetched
    again = handle.synchronize().tensors_fetched
    state = [tensor.double().sum().item() for tensor in (*model.parameters(), *model.buffers())]
    state.append(optimizer.state[model.module[2].bias]["exp_avg"].sum().item())
    handle.detach()
    return fetched, again, state


def test_synchronize_mends_parameters_buffers_and_optimizer_state(run_ranks) -> None:
    (none, _, reference), (fetched, again, mended) = run_ranks(mend, 2, group=True)
    assert (none, fetched, again) == (0, 3, 0)
    assert mended == reference


def detach_alone(member: Member) -> tuple[float, list[str]]:
    """The other rank has gone without detaching: its goodbye is recognised, and nobody waits for it."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("holdfast").addHandler(handler)
    model, optimizer, handle = attached(member, **AMPLE)
    step(model, optimizer, member.rank)
    member.barrier()
    if member.rank == 1:
        handle._link.close()
        member.say("left")
        handle._closed = True
        return 0.0, []
    member.hear("left")
    started = time.monotonic()
    handle.detach()
    assert left_behind() == []
    return time.monotonic() - started, warnings


def test_detaching_beside_a_rank_that_has_left_is_quick_and_says_so(run_ranks) -> None:
    (elapsed_s, warnings), _ = run_ranks(detach_alone, 2, group=True)
    assert elapsed_s < 3.0
    assert any("detached without a last synchronize" in warning for warning in warnings)


def forgotten(member: Member) -> None:
    """A handle that goes out of scope with its model closes its link."""
    model, optimizer, handle = attached(member, **AMPLE)
    step(model, optimizer, member.rank)
    handle._before_forward()
    member.barrier()
    del model, optimizer, handle
    gc.collect()
    assert left_behind() == []
    member.barrier()


def test_a_forgotten_model_leaves_no_thread(run_ranks) -> None:
    run_ranks(forgotten, 2, group=True)


def interrupted_detach(member: Member) -> str:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, _, handle = attached(member, **AMPLE)
    if member.rank == 1:
        member.hear("interrupted")
        handle._link.close()
        return ""
    member.say("detaching")
    with pytest.raises(KeyboardInterrupt):
        handle.detach()
    assert handle.closed
    assert left_behind() == []
    member.say("interrupted")
    return "interrupted"


def test_control_c_while_detaching_still_closes(start_ranks) -> None:
    with start_ranks(interrupted_detach, 2, group=True) as ranks:
        ranks.hear("detaching")
        time.sleep(0.3)
        ranks.signal(0, signal.SIGINT)
        assert ranks.results() == ["interrupted", ""]


def model_gone(member: Member) -> None:
    handle = attached(member, **AMPLE)[2]
    gc.collect()
    with pytest.raises(HandleClosed, match="model"):
        handle.synchronize()
    handle.detach()
    assert left_behind() == []


def test_a_handle_whose_model_is_gone_says_so_and_can_be_closed(run_ranks) -> None:
    run_ranks(model_gone, 2, group=True)
