"""`holdfast.attach`: DDP's buckets go over Holdfast from here on.

No postponed annotations in this file: DDP compares the hook's annotations with its own types.
"""

import collections
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from holdfast.bridge import rendezvous
from holdfast.bridge.handle import Handle
from holdfast.bridge.tensors import FORMATS, layout_of, memory_of
from holdfast.codec.residual import Layout
from holdfast.config import resolve
from holdfast.errors import AttachError, ConfigError, UnsupportedGradient
from holdfast.reduce.pending import Memory, Pending
from holdfast.strategy import OptiReduce

logger = logging.getLogger(__name__)

# Attaching is a collective, so counting attachments per group gives the same number on every rank of it.
_attachments: collections.Counter[str] = collections.Counter()
_STATE_ATTRIBUTE = "_holdfast_hook_state"
# What every run should show. `explain()` tells the rest.
_ANNOUNCED = ("rank 0 of ", "bound: ", "incast: ", "rate: ", "datagrams: ")


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    strategy: OptiReduce | None = None,
    snapshot: Callable[[], None] | None = None,
    **settings: Any,
) -> Handle:
    """Sends the gradients of a `DistributedDataParallel` model over Holdfast. Every rank calls it, once, before training.

    Optimizers of the model are found when they make their first step; one that is given is the only one whose state is
    kept equal. `strategy` names what of the all-reduce is to be otherwise than by default. `snapshot` is called before training halts because too much is lost. `settings` are fields of
    `holdfast.Config`.
    """
    ddp = _require_suitable(model)
    group_name = getattr(ddp.process_group, "group_name", "world")
    attachment = _attachments[group_name]
    _attachments[group_name] += 1  # before anything that could fail on one rank only
    resolved = resolve({**_settings_of(strategy, settings), **settings})
    rank, num_ranks = dist.get_rank(ddp.process_group), dist.get_world_size(ddp.process_group)
    _announce_on_stderr(rank)
    prefix = f"holdfast/{group_name}/{attachment}"
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    step_bytes = sum(p.numel() * p.element_size() for p in ddp.module.parameters() if p.requires_grad)
    link = rendezvous.join(store, rank=rank, num_ranks=num_ranks, config=resolved.config, step_bytes=step_bytes)
    state = getattr(ddp, _STATE_ATTRIBUTE, None)
    if state is None:
        state = _HookState(ddp)
        setattr(ddp, _STATE_ATTRIBUTE, state)
        ddp.register_comm_hook(state, _hook)
    state.handle = Handle(ddp, optimizer, link, resolved, on_detach=state.forget_handle, snapshot=snapshot)
    if num_ranks == 1:
        logger.info("[rank 0] world size 1: nothing will be sent")
    elif rank == 0:
        for line in state.handle.explain().splitlines():
            if line.startswith(_ANNOUNCED):
                logger.info("[rank 0] %s", line)
    return state.handle


def _settings_of(strategy: OptiReduce | None, settings: dict[str, Any]) -> dict[str, Any]:
    chosen = {} if strategy is None else strategy.settings()
    if twice := sorted(chosen.keys() & settings.keys()):
        raise ConfigError(
            f"{', '.join(twice)} is given to attach and in its strategy", what_to_try="one of the two places"
        )
    return chosen


def _require_suitable(model: torch.nn.Module) -> DistributedDataParallel:
    if not isinstance(model, DistributedDataParallel):
        raise AttachError(
            f"attach needs a DistributedDataParallel model, not {type(model).__name__}",
            what_to_try="model = torch.nn.parallel.DistributedDataParallel(model) first",
        )
    state = getattr(model, _STATE_ATTRIBUTE, None)
    if state is not None and state.handle is not None:
        raise AttachError("this model is attached already", what_to_try="handle.detach() first")
    if state is None and getattr(model, "_comm_hooks", None):
        raise AttachError("this model has a communication hook already", what_to_try="attach instead of that hook")
    if model.find_unused_parameters and not model.static_graph:
        raise AttachError(
            "find_unused_parameters=True makes DDP exchange a bitmap over TCP in every step, which would bring the "
            "barrier back",
            what_to_try="find_unused_parameters=False, or static_graph=True if the unused ones never change",
        )
    for name, module in model.module.named_modules():
        if getattr(module, "sparse", False) is True:
            raise UnsupportedGradient(
                f"{name or type(module).__name__} has sparse gradients", what_to_try="sparse=False"
            )
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and parameter.dtype not in FORMATS:
            raise UnsupportedGradient(
                f"parameter {name} is {parameter.dtype}",
                what_to_try=f"one of {', '.join(str(dtype) for dtype in FORMATS)}",
            )
    return model


class _HookState:
    """What DDP keeps for the hook. DDP takes a hook once and for good, so the handle in it is what changes."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.process_group = ddp.process_group
        self.handle: Handle | None = None
        self.started: list[_StartedBucket] = []
        self._name_of = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
        self._layouts: dict[tuple[int, ...], tuple[int, Layout]] = {}

    def forget_handle(self) -> None:
        self.handle = None

    def layout_of_bucket(self, bucket: dist.GradBucket) -> tuple[int, Layout]:
        """The number that ranks compare, and what it stands for."""
        # DDP rebuilds its buckets after the first step, so the key is the parameters, not the bucket's index.
        parameters = bucket.parameters()
        key = tuple(id(parameter) for parameter in parameters)
        if key not in self._layouts:
            named = [(self._name_of[id(parameter)], parameter) for parameter in parameters]
            number = layout_of([(name, parameter.shape) for name, parameter in named])
            self._layouts[key] = number, tuple((name, parameter.numel()) for name, parameter in named)
        return self._layouts[key]

    def finish_backward(self) -> None:
        """Runs at the end of the backward pass, just before DDP reads the futures.

        Waiting here, on the thread that called backward, needs no thread that would fight for the GIL, and a named
        error raised here reaches the caller of `backward()` as it is.
        """
        handle = self.handle
        while self.started:
            bucket = self.started.pop(0)
            try:
                if handle is not None:
                    handle.bucket_finished(bucket.pending, bucket.sent, bucket.buffer)
            except BaseException:
                # This backward pass is over; what it started elsewhere is not, and still writes into its buckets.
                if handle is not None:
                    for unfinished in self.started:
                        handle.bucket_abandoned(unfinished.pending)
                self.started = []
                raise
            bucket.future.set_result(bucket.buffer)


class _StartedBucket:
    __slots__ = ("buffer", "future", "pending", "sent")

    def __init__(self, buffer: torch.Tensor, sent: torch.Tensor, pending: Pending) -> None:
        self.buffer = buffer
        self.sent = sent  # the buffer itself, or what a 16-bit wire carries of it
        self.pending = pending
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future()


def _hook(state: _HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    handle = state.handle
    if handle is None:
        return allreduce_hook(state.process_group, bucket)
    if handle.passing:
        return _nothing_of(bucket)
    # The first step of a static graph hands over all buckets after the backward pass, in a callback of DDP's that also
    # reads the futures: a callback of ours would come too late.
    after_backward = torch._C._current_autograd_node() is None
    if not after_backward:
        # DDP queues its own end-of-backward step behind this one. Once per bucket, although the first call finishes
        # all: a backward pass that was interrupted must not keep the next one from finishing.
        torch.autograd.Variable._execution_engine.queue_callback(state.finish_backward)
    number, layout = state.layout_of_bucket(bucket)
    sent = buffer = bucket.buffer()
    memory_of(buffer)  # refuses what cannot be sent before anything is written into it

    def prepare(operation: int) -> Memory:
        nonlocal sent
        sent = handle.bucket_to_send(buffer, layout, operation)
        return memory_of(sent)

    pending = handle.reducer.start_numbered(prepare, layout=number, bucket=bucket.index())
    started = _StartedBucket(buffer, sent, pending)
    state.started.append(started)
    if bucket.is_last():
        handle.buckets_all_started(pending)
        if after_backward:
            state.finish_backward()
    return started.future


def _nothing_of(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Zeros: no rank applies its own gradient, whoever takes a look at it before the optimizer's step."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer().zero_())
    return future


def _announce_on_stderr(rank: int) -> None:
    """Choices are to be seen: where nobody has set up logging, rank 0's go to stderr."""
    package_logger = logging.getLogger("holdfast")
    if package_logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    package_logger.addHandler(handler)
    package_logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
