"""What `attach` returns: everything one may ask of a model that trains over Holdfast."""

from __future__ import annotations

import contextlib
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from holdfast.bridge.buffer_places import BufferPlaces
from holdfast.bridge.buffers import BufferAverager
from holdfast.bridge.compared_state import ComparedState
from holdfast.bridge.equality import Equalised, equalise, model_state
from holdfast.bridge.path_words import describe_packing, describe_path, describe_rates
from holdfast.bridge.replica_guard import ReplicaGuard
from holdfast.bridge.state_blocks import StateBlocks
from holdfast.bridge.step_hooks import StepHooks
from holdfast.bridge.summary import Summary, Totals, percentile
from holdfast.codec.cast import Cast
from holdfast.codec.hadamard import Hadamard
from holdfast.codec.loss_feedback import LossFeedback
from holdfast.codec.residual import Layout
from holdfast.config import Config, ResolvedConfig
from holdfast.control.hard_bound import HardBound
from holdfast.control.narrowing import explain as explain_narrowing
from holdfast.control.safeguard import LossBudget, StepLosses
from holdfast.errors import ConfigError, HandleClosed, HoldfastError, LossBudgetExceeded, PeerDead
from holdfast.link.barrier import Barrier
from holdfast.link.interface import is_loopback
from holdfast.link.link import Link
from holdfast.outcome import Outcome
from holdfast.reduce.pending import Pending
from holdfast.reduce.reducer import Reducer, reducer_for

logger = logging.getLogger(__name__)

_KEPT_OUTCOMES = 10_000
_STATE_VERSION = 2
_STATE_ORIGIN = "what state_dict() of this version returned"
_DETACH_PATIENCE_MS = 10_000.0
# Backward passes after which an optimizer should have made a step; more, and gradients may be accumulated.
_PASSES_WITHOUT_A_STEP = 100


class Handle:
    """A model attached to Holdfast. `detach()` gives it back to DDP's own all-reduce."""

    def __init__(
        self,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer | None,
        link: Link,
        resolved: ResolvedConfig,
        on_detach: Callable[[], None],
        snapshot: Callable[[], None] | None = None,
    ) -> None:
        # Weak: DDP's C++ side keeps the hook's state and so this handle, a circle Python's collector cannot see through.
        self._model_reference = weakref.ref(model)
        self._link = link
        self._resolved = resolved
        self._on_detach = on_detach
        self._snapshot = snapshot
        self._reducer = reducer_for(link)
        self._cast = _make_cast(resolved.config, link)
        self._hadamard = _make_hadamard(resolved.config, link)
        self._encoded: set[int] = set()  # operations under way whose buckets are
        self._feedback = _make_feedback(resolved.config, link, self._cast)
        self._outcomes: deque[Outcome] = deque(maxlen=_KEPT_OUTCOMES)
        self._totals = Totals()
        self._closed = False
        self._synchronises_buffers = bool(model.broadcast_buffers)
        self._buffer_places = BufferPlaces(model.module)
        self._buffers = BufferAverager(self._reducer, self._buffers_to_average)
        model.broadcast_buffers = False
        self._pre_forward = model.register_forward_pre_hook(lambda _module, _inputs: self._before_forward())
        config = resolved.config
        self._budget = LossBudget(config.loss_budget, config.over_budget, config.most_skipped_steps)
        self._losses = StepLosses()
        self._buffers_missed = False
        self._passes_without_a_step = 0
        self._steps = StepHooks(model.module.parameters(), optimizer, self._before_step, self._after_step)
        compares = config.compare_replicas and link.num_ranks > 1
        self._state = ComparedState()
        self._guard = ReplicaGuard(link, self._reducer, self._blocks_to_compare) if compares else None

    @property
    def _model(self) -> DistributedDataParallel:
        model = self._model_reference()
        if model is None:
            raise HandleClosed("the model of this handle is gone", what_to_try="keep the model as long as the handle")
        return model

    # -- what the hook calls --------------------------------------------------------------------------------------

    @property
    def reducer(self) -> Reducer:
        return self._reducer

    @property
    def cast(self) -> Cast | None:
        """What makes float32 buckets narrow; none when they travel as they are."""
        return self._cast

    def _buffers_to_average(self) -> list[torch.Tensor]:
        return [buffer for _, buffer in self._named_buffers()]

    @property
    def hadamard(self) -> Hadamard | None:
        """What encodes float32 buckets; none when they always travel as they are."""
        return self._hadamard

    @property
    def passing(self) -> bool:
        """The others have made this step already: nothing of it is sent, nothing is applied."""
        return self._guard is not None and self._guard.passing

    def bucket_to_send(self, bucket: torch.Tensor, layout: Layout, operation: int) -> torch.Tensor:
        """What goes over the wire: the bucket itself or, for a 16-bit wire, another tensor."""
        feedback = self._feedback if self._feedback is not None and self._feedback.applies_to(bucket) else None
        if feedback is not None:
            feedback.add_left_over(bucket, layout)
        if self._hadamard is not None and self._hadamard.applies_to(bucket) and self._encodes(operation):
            self._hadamard.encode(bucket, operation)
            self._encoded.add(operation)
        sent = bucket
        if self._cast is not None and self._cast.applies_to(bucket):
            sent = self._cast.narrow(bucket, layout)
        if feedback is not None:
            feedback.keep(sent, layout, operation)
        return sent

    def _encodes(self, operation: int) -> bool:
        return self._resolved.config.hadamard == "on" or self._reducer.encodes(operation)

    def bucket_finished(self, pending: Pending, sent: torch.Tensor, bucket: torch.Tensor) -> Outcome:
        """Waits for the average of what `bucket_to_send` gave, and leaves it in the bucket."""
        try:
            outcome = self._reducer.finish(pending)
        except BaseException:
            self._forget_sent(pending)
            raise
        if self._cast is not None and sent is not bucket:
            self._cast.widen(sent, bucket)
        encoded = pending.operation in self._encoded
        self._encoded.discard(pending.operation)
        if self._feedback is not None and self._feedback.applies_to(bucket):
            decode = self._decoder(pending.operation) if encoded else None
            self._feedback.settle(pending.operation, outcome.counted, decode)
        if self._hadamard is not None and encoded:
            lost = self._hadamard.decode(bucket, outcome.missing, outcome.operation)
            outcome = replace(outcome, missing=lost, missing_coefficients=outcome.missing)
        if self._link.num_ranks > 1:
            self._losses.add(
                withdraws=self._guard is not None,
                num_elements=outcome.num_elements,
                not_received_elements=outcome.not_received_elements,
                ownerless_elements=outcome.ownerless_elements,
                contributed_elements=outcome.delivered_ratio * outcome.num_elements * self._link.num_ranks,
                contributors=outcome.contributors,
                incomplete_peers=outcome.late_peers,
            )
        self._note(outcome)
        return outcome

    def _decoder(self, operation: int) -> Callable[[torch.Tensor], None]:
        hadamard = self._hadamard
        assert hadamard is not None  # it encoded the operation
        return lambda coefficients: hadamard.invert(coefficients, operation)

    def bucket_abandoned(self, pending: Pending) -> None:
        """Nobody will wait for this one any more."""
        self._reducer.abandon(pending)
        self._forget_sent(pending)

    def _forget_sent(self, pending: Pending) -> None:
        self._encoded.discard(pending.operation)
        if self._feedback is not None:
            self._feedback.abandon(pending.operation)

    def buckets_all_started(self, last: Pending) -> None:
        self._buffers.start(beside=last)
        if self._guard is not None:
            self._guard.while_waiting()
        self._passes_without_a_step += 1
        unseen = self._guard is not None and not self._steps.optimizers
        if unseen and self._passes_without_a_step == _PASSES_WITHOUT_A_STEP:
            logger.warning(
                "[rank %d] %d backward passes, and no optimizer of this model has made a step: replicas are not "
                "compared, and losses may let them drift apart. Give the optimizer to attach, or call synchronize()",
                self._link.rank,
                _PASSES_WITHOUT_A_STEP,
            )

    def _before_forward(self) -> None:
        self._finish_buffers()
        if not self._closed:
            self._buffers.remember()

    def _finish_buffers(self) -> None:
        if not self._closed:
            for outcome in self._buffers.finish():
                # The next average makes them equal again; until then this rank is not what the others are.
                self._buffers_missed = self._buffers_missed or outcome.not_received_elements > 0
                self._note(outcome)

    # -- around the optimizer's step ----------------------------------------------------------------------------------

    def _before_step(self) -> None:
        if self._closed:
            return
        self._finish_buffers()  # so that they, too, are equal after the step
        self._passes_without_a_step = 0
        if self.passing:
            self._buffers.undo_forward()
            self._leave_update_out()
            return
        if self._guard is not None:
            self._guard.before_step()
        judgement = self._budget.judge(self._losses)
        if judgement.apply:
            return
        # What is left out is left out on purpose: no part of it is to come with the next gradients.
        if self._feedback is not None:
            self._feedback.forget()
        lost = f"{self._losses.lost_ratio:.0%} of the contributions"
        if judgement.halt:
            if self._snapshot is not None:
                self._snapshot()
            raise LossBudgetExceeded(
                f"{lost} to this step were lost, after {self._budget.skipped_in_a_row - 1} updates that were left out",
                peers=self._losses.culprits,
                what_to_try="look at those ranks' network (handle.explain()), or raise loss_budget",
            )
        if not self._losses.withdrawn:
            logger.warning(
                "[rank %d] %s were lost (ranks %s): the update is left out",
                self._link.rank,
                lost,
                self._losses.culprits,
            )
        self._leave_update_out()

    def _leave_update_out(self) -> None:
        for parameter in self._model.module.parameters():
            parameter.grad = None  # optimizers leave out what has none

    def _after_step(self) -> None:
        if self._closed:
            return
        if self._guard is not None and self._guard.passing:
            self._guard.step_passed()
            return
        losses, self._losses = self._losses, StepLosses()
        if self._guard is not None:
            missed = losses.not_received_elements > 0 or self._buffers_missed
            self._buffers_missed = False
            self._guard.after_step(missed=missed, withdrawn=losses.withdrawn)

    def _blocks_to_compare(self) -> StateBlocks:
        return self._state.blocks(self._parameters_to_compare, self._named_buffers(), self._steps.optimizers)

    def _parameters_to_compare(self) -> list[tuple[str, torch.Tensor]]:
        ignored = self._model.parameters_to_ignore
        return [(name, parameter) for name, parameter in self._model.module.named_parameters() if name not in ignored]

    def _named_buffers(self) -> list[tuple[str, torch.Tensor]]:
        """Those that DDP would keep alike."""
        if not self._synchronises_buffers:
            return []
        ignored = self._model.parameters_to_ignore
        return [(name, buffer) for name, buffer in self._buffer_places.named_buffers() if name not in ignored]

    def _note(self, outcome: Outcome) -> None:
        # Under heavy loss there are thousands of these in a bucket, and they have done their work.
        self._outcomes.append(replace(outcome, counted=()) if outcome.counted else outcome)
        self._totals.add(outcome)
        with self._link.errors_named():
            changes = self._link.engine.take_peer_changes()
        for change in changes:
            state = change.state.name
            if state in ("dead", "left"):
                logger.warning(
                    "[rank %d] rank %d %s (last heard %.1f s ago): going on without it",
                    self._link.rank,
                    change.peer,
                    "is dead" if state == "dead" else "has left",
                    change.silence_s,
                )
        if not outcome.complete:
            logger.debug("[rank %d] %s", self._link.rank, outcome.describe())
        if outcome.peers and not any(peer.alive for peer in outcome.peers):
            raise PeerDead(
                "no peer is left",
                peers=[peer.rank for peer in outcome.peers],
                what_to_try="restart the job from its last checkpoint",
            )

    # -- what users call ------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def step(self) -> int:
        """How many steps the replicas have made. A rank that was away has made fewer of them itself."""
        return 0 if self._guard is None else self._guard.step

    def outcomes(self) -> list[Outcome]:
        """The outcomes of the last operations (at most 10,000), oldest first."""
        return list(self._outcomes)

    def summary(self) -> Summary:
        """All operations since `attach`, in a few numbers."""
        self._require_open()
        snapshot = self._link.snapshot()
        elapsed = sorted(outcome.elapsed_ms for outcome in self._outcomes)
        return Summary(
            operations=self._totals.operations,
            exact_operations=self._totals.exact_operations,
            delivered_ratio=self._totals.delivered_ratio,
            narrow_ratio=self._totals.narrow_ratio,
            elapsed_p50_ms=percentile(elapsed, 0.50),
            elapsed_p99_ms=percentile(elapsed, 0.99),
            elapsed_max_ms=elapsed[-1] if elapsed else 0.0,
            deadline_ms=2 * adaptation.t_b_ms if (adaptation := self._reducer.adaptation) else None,
            ended_early=self._totals.ended_early,
            ended_at_limit=self._totals.ended_at_limit,
            ended_at_bound=self._totals.ended_at_bound,
            incomplete_by_peer=dict(self._totals.incomplete_by_peer),
            bytes_sent=sum(peer.bytes_sent for peer in snapshot.peers),
            bytes_received=sum(peer.bytes_received for peer in snapshot.peers),
            dropped_datagrams={cause: count for cause, count in snapshot.drops.items() if count},
            skipped_steps=self._budget.skipped,
            replicas=None if self._guard is None else self._guard.figures,
        )

    def explain(self) -> str:
        """Which choices are in force, and what made them so."""
        self._require_open()
        agreement, config = self._link.agreement, self._resolved.config
        own = agreement.ranks[agreement.rank]
        if agreement.num_ranks == 1:
            return "world size 1: nothing is sent, gradients stay as they are"
        snapshot = self._link.snapshot()
        lines = [
            f"rank {agreement.rank} of {agreement.num_ranks} at {own.host} port {own.port}, {config.protection}",
            *self._reducer.explain(),
            describe_rates(snapshot, config),
            f"datagrams: {agreement.datagram_bytes} bytes, "
            + ("loopback" if is_loopback(own.host) else "the smallest path MTU of the job"),
            "wire: " + ("every gradient in its own dtype" if self._cast is None else self._cast.describe()),
            f"late: {explain_narrowing(config, self._totals.narrow_ratio, packs=self._link.pack_below_bytes_per_s > 0)}",
            describe_packing(snapshot, config, self._link.pack_below_bytes_per_s),
            "hadamard: " + self._explain_hadamard(),
            "losses: " + self._explain_feedback(),
            f"receive buffer: {self._link.engine.receive_buffer_bytes >> 10} KiB of "
            f"{config.receive_buffer_bytes >> 10} asked for; segmentation offload "
            + ("on" if self._link.engine.has_gso else "not available"),
            "buffers: "
            + ("averaged with the gradients" if self._synchronises_buffers else "left alone (broadcast_buffers=False)"),
            f"safeguard: {self._budget.explain()}",
            f"replicas: {self._explain_replicas()}",
        ]
        return "\n".join([*lines, *(describe_path(peer, snapshot) for peer in snapshot.peers)])

    def _explain_replicas(self) -> str:
        if not self._steps.optimizers:
            state = "parameters and buffers; no optimizer has made a step yet, and none was given to attach"
        else:
            state = "parameters, buffers and optimizer state"
        if self._guard is None:
            return f"{state} are made equal by synchronize() alone"
        return f"{state}, {self._guard.explain()}"

    def _explain_hadamard(self) -> str:
        switch = self._reducer.hadamard_switch
        if self._hadamard is None:
            return "off, elements travel as they are"
        if switch is None:
            return self._hadamard.describe()
        return f"{self._hadamard.describe() if switch.on else 'off, elements travel as they are'}; {switch.reason}"

    def _explain_feedback(self) -> str:
        if self._feedback is not None:
            return self._feedback.describe()
        fed_back = self._resolved.config.loss_feedback and _sends(self._link)
        return "what is lost is not sent again" + (", for in groups nobody knows what it was" if fed_back else "")

    def synchronize(self) -> Equalised:
        """Makes parameters, buffers and optimizer state equal to rank 0's, bit for bit. A collective: all ranks call."""
        self._require_open()
        self._finish_buffers()
        return self._equalise(self._resolved.config.exact_deadline_ms)

    def _equalise(self, deadline_ms: float) -> Equalised:
        with contextlib.nullcontext() if self._guard is None else self._guard.pause():
            state = model_state(self._model.module, self._steps.optimizers)
            return equalise(self._link, state, deadline_ms / 1e3, sure=self._guard is None or not self._guard.dirty)

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to skip the warm-up. Synchronizes first, so it is a collective like `synchronize`."""
        self.synchronize()
        adaptation = self._reducer.adaptation
        return {
            "version": _STATE_VERSION,
            "stage_ms": adaptation.bound.t_b_ms if adaptation else None,
            "num_bytes": adaptation.bound.num_bytes if adaptation else 0,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a bound measured by an earlier run. Every rank loads the same.

        What rounding to a 16-bit wire or the network left over is forgotten: it belongs to gradients of what was
        trained before.
        """
        self._require_open()
        if not isinstance(state, Mapping) or state.get("version") != _STATE_VERSION:
            version = state.get("version") if isinstance(state, Mapping) else None
            raise ConfigError(f"this state has version {version!r}, not {_STATE_VERSION}", what_to_try=_STATE_ORIGIN)
        if self._cast is not None:
            self._cast.forget()
        if self._feedback is not None:
            self._feedback.forget()
        stage_ms, num_bytes = state.get("stage_ms"), state.get("num_bytes")
        if stage_ms is None:
            return
        if type(stage_ms) not in (int, float) or not 0 < stage_ms < math.inf:
            raise ConfigError(f"the bound in this state is {stage_ms!r}", what_to_try=_STATE_ORIGIN)
        if type(num_bytes) is not int or num_bytes < 0:
            raise ConfigError(f"the bucket in this state has {num_bytes!r} bytes", what_to_try=_STATE_ORIGIN)
        floor_ms = self._resolved.config.deadline_floor_ms / 2
        self._reducer.adopt(HardBound.loaded(float(stage_ms), num_bytes, floor_ms))

    def detach(self) -> None:
        """Synchronizes, gives the model back to DDP's own all-reduce, and closes the link. Harmless when repeated."""
        if self._closed:
            return
        try:
            self._finish_buffers()
            # Nobody leaves before everybody has what it needs; but a rank that does not come is not waited for long.
            barrier = Barrier(self._link)
            barrier.wait(_DETACH_PATIENCE_MS)
            self._equalise(_DETACH_PATIENCE_MS)
            barrier.wait(_DETACH_PATIENCE_MS)
        except HoldfastError as error:
            logger.warning("[rank %d] detached without a last synchronize: %s", self._link.rank, error)
        finally:  # also when Ctrl-C ends the wait
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._pre_forward.remove()
        self._steps.remove()
        if self._guard is not None:
            self._guard.close()
        if (model := self._model_reference()) is not None:
            model.broadcast_buffers = self._synchronises_buffers
        self._on_detach()
        self._link.close()

    def _require_open(self) -> None:
        if self._closed:
            raise HandleClosed("this handle was detached", what_to_try="attach again")


def _make_cast(config: Config, link: Link) -> Cast | None:
    return None if config.wire == "float32" or not _sends(link) else Cast(config.wire, config.rounding, link.rank)


def _make_hadamard(config: Config, link: Link) -> Hadamard | None:
    encodes = config.hadamard_in_force != "off" and _sends(link)
    return Hadamard(scales=config.estimate == "unbiased") if encodes else None


def _make_feedback(config: Config, link: Link, cast: Cast | None) -> LossFeedback | None:
    # In groups a contribution can be lost on two ways, and only the first is heard of.
    told = _sends(link) and link.agreement.num_groups == 1 and link.host_meetings is None
    return LossFeedback(torch.float32 if cast is None else cast.dtype) if config.loss_feedback and told else None


def _sends(link: Link) -> bool:
    """Else nothing is lost or long on its way, so nothing is rounded or encoded for it."""
    return link.num_ranks > 1 and link.meeting is None
