"""The jobs that faults are done to: operations on a bare link, bounded or exact, and DDP training.

All have a model, an optimizer and several buckets a step, and are opened, stepped, handed over and closed alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from chaos.cases import Case
from chaos.strikes import Injector
from holdfast.bridge.equality import CHANNELS, equalise, model_state
from holdfast.bridge.handle import Handle
from holdfast.bridge.tensors import memory_of
from holdfast.link.link import Link
from holdfast.outcome import Outcome
from holdfast.reduce.pending import Pending
from holdfast.reduce.transpose import TransposeAllReduce

_NUM_BUCKETS = 3
_BUCKET_ELEMENTS = 131_101
_FEATURES = 64
_WIDTH = 192


class Job(Protocol):
    optimizer: torch.optim.Optimizer
    num_buckets: int

    def open(self, join_timeout_s: float) -> tuple[Link, TransposeAllReduce]: ...
    def step(self, number: int) -> list[Outcome]: ...
    def hand_over(self) -> None: ...
    def close(self) -> None: ...
    def leave(self) -> None: ...
    def state(self) -> list[torch.Tensor]: ...


def make(member: Member, case: Case) -> Job:
    torch.manual_seed(case.seed)
    return DdpJob(member, case) if case.shape == "ddp" else LinkJob(member, case)


class LinkJob:
    """Buckets of known numbers, so that every complete result can be checked."""

    num_buckets = _NUM_BUCKETS

    def __init__(self, member: Member, case: Case) -> None:
        self._member = member
        self._case = case
        self._parameters = [nn.Parameter(torch.randn(_BUCKET_ELEMENTS)) for _ in range(_NUM_BUCKETS)]
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self._parameters, lr=0.01)
        self._link: Link | None = None
        self._reducer: TransposeAllReduce | None = None

    def open(self, join_timeout_s: float) -> tuple[Link, TransposeAllReduce]:
        self._link = self._member.join(join_timeout_s=join_timeout_s, **self._case.settings)
        self._reducer = TransposeAllReduce(self._link)
        return self._link, self._reducer

    def step(self, number: int) -> list[Outcome]:
        assert self._reducer is not None
        exact = self._case.shape == "exact"
        gradients = [torch.full((_BUCKET_ELEMENTS,), float(self._number(number, b))) for b in range(_NUM_BUCKETS)]
        pending = [
            self._reducer.start(memory_of(gradient), layout=bucket, bucket=bucket, exact=exact)
            for bucket, gradient in enumerate(gradients)
        ]
        outcomes = self._finish(pending)
        for bucket, (gradient, outcome) in enumerate(zip(gradients, outcomes, strict=True)):
            self._check(gradient, outcome, number, bucket)
            self._parameters[bucket].grad = gradient
        self.optimizer.step()
        return outcomes

    def _finish(self, pending: list[Pending]) -> list[Outcome]:
        assert self._reducer is not None
        outcomes = []
        try:
            for entry in pending:
                outcomes.append(self._reducer.finish(entry))
        except BaseException:
            for entry in pending[len(outcomes) + 1 :]:
                self._reducer.abandon(entry)
            raise
        return outcomes

    def _number(self, step: int, bucket: int, rank: int | None = None) -> int:
        return (1 + step % 50) * (1 + bucket) * (1 + (self._member.rank if rank is None else rank))

    def _check(self, result: torch.Tensor, outcome: Outcome, step: int, bucket: int) -> None:
        ranks = range(self._member.num_ranks)
        if outcome.complete:
            mean = sum(self._number(step, bucket, rank) for rank in ranks) / len(ranks)
            torch.testing.assert_close(result, torch.full_like(result, mean))
        for begin, end in outcome.missing:
            assert not result[begin:end].any(), "what did not arrive is not zero"

    def hand_over(self) -> None:
        assert self._link is not None
        equalise(self._link, self.state(), self._case.limits.exact_deadline_ms / 1e3)

    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        if self._link is not None:
            self._link.close()
            self._member._links.remove(self._link)
        self._link = self._reducer = None

    def state(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self._parameters]


class DdpJob:
    """A small model with BatchNorm whose gradients fill several buckets."""

    num_buckets = 0  # DDP tells, once it has run

    def __init__(self, member: Member, case: Case) -> None:
        self._case = case
        self._rank = member.rank
        layers: list[nn.Module] = []
        for width in (_FEATURES, *[_WIDTH] * 3):
            layers += [nn.Linear(width, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU()]
        module = nn.Sequential(*layers, nn.Linear(_WIDTH, 8))
        self._model = DistributedDataParallel(module, bucket_cap_mb=0.05)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._handle: Handle | None = None

    def open(self, join_timeout_s: float) -> tuple[Link, TransposeAllReduce]:
        settings = {"join_timeout_s": join_timeout_s, **self._case.settings}
        self._handle = holdfast.attach(self._model, self.optimizer, **settings)
        return self._handle._link, self._handle.reducer

    def step(self, number: int) -> list[Outcome]:
        """Without outcomes where a rank that was away passes the steps that it missed."""
        assert self._handle is not None
        before = self._handle.summary().operations
        inputs = torch.randn(8, _FEATURES, generator=torch.Generator().manual_seed(977 * number + self._rank))
        self.optimizer.zero_grad()
        self._model(inputs).square().mean().backward()
        self.optimizer.step()
        outcomes = self._handle.outcomes()
        outcomes = outcomes[len(outcomes) - (self._handle.summary().operations - before) :]
        if outcomes:
            self.num_buckets = 1 + max(outcome.bucket or 0 for outcome in outcomes)
        return outcomes

    def hand_over(self) -> None:
        assert self._handle is not None
        self._handle.synchronize()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.detach()
        self._handle = None

    def leave(self) -> None:
        """Without a last synchronize, as a rank that knows itself to be behind."""
        if self._handle is not None:
            self._handle._close()
        self._handle = None

    def state(self) -> list[torch.Tensor]:
        return model_state(self._model.module, [self.optimizer])


@contextlib.contextmanager
def watched(job: Job, injector: Injector) -> Iterator[None]:
    """Tells the injector of the moments inside joining and inside the optimizer."""
    wait_joined = Link.wait_joined

    def waiting_to_join(link: Link, timeout_s: float) -> None:
        injector.reached("handshake")  # addresses are exchanged, the socket is open, nobody has been heard
        wait_joined(link, timeout_s)

    Link.wait_joined = waiting_to_join  # type: ignore[method-assign]
    in_optimizer = job.optimizer.register_step_pre_hook(lambda *_: injector.reached("optimizer"))
    try:
        yield
    finally:
        Link.wait_joined = wait_joined  # type: ignore[method-assign]
        in_optimizer.remove()


def watch_operations(job: Job, link: Link, reducer: TransposeAllReduce, injector: Injector) -> None:
    """Tells the injector of the moments inside a step and inside the hand-over."""
    assert job.num_buckets >= 3
    start, send_note, notes_sent = reducer.start_numbered, link.send_note, 0
    moments = {job.num_buckets // 2: "middle-bucket", 0: "first-bucket", job.num_buckets - 1: "last-bucket"}

    def starting(*args: Any, bucket: int | None = None, **options: Any) -> Pending:
        pending = start(*args, bucket=bucket, **options)
        if bucket in moments:
            injector.reached(moments[bucket])  # its datagrams are on their way
        return pending

    def sending(peer: int, channel: int, *args: Any) -> int:
        nonlocal notes_sent
        if channel not in CHANNELS:  # what compares replicas waits for nobody
            return send_note(peer, channel, *args)
        # Before a note of its own that others wait for. Rank 0's first announces the round, its second goes to another.
        if link.rank != 0 or notes_sent > 0:
            injector.reached("hand-over")
        notes_sent += 1
        return send_note(peer, channel, *args)

    reducer.start_numbered = starting  # type: ignore[method-assign]
    link.send_note = sending  # type: ignore[method-assign]
