"""A joined job of three ranks, misused.

All ranks live in this process; each has its own socket, reactor thread and model. The models' process group has one
member, so that DDP builds; what they do together they do over Holdfast.
"""

from __future__ import annotations

from typing import Any

import arguments as odd
import torch
from attach_machine import small_model
from caller import Caller
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from join_machine import join_all
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.bridge.tensors import memory_of
from holdfast.config import Config, ResolvedConfig
from holdfast.link.barrier import Barrier
from holdfast.link.link import Link
from holdfast.reduce.pending import Pending

NOTHING = torch.empty(0)
_BRISK = {"exact_deadline_ms": 300.0, "join_timeout_s": 20.0, "silence_limit_ms": 2_000.0}
_MODES = st.sampled_from(
    [
        {},  # in shared memory
        {"shared_memory": False},
        {"deadline_ms": 60.0},
        {"deadline_ms": 60.0, "protection": "insecure", "deterministic": True},
        {"shared_memory": False, "protection": "authenticated", "packets_per_key": 20, "warmup_operations": 1},
        {"deadline_ms": 60.0, "credit": 1, "early_bytes_cap": 1_000, "datagram_bytes": 576},
    ]
)


class JobOfThree(RuleBasedStateMachine):
    """Three ranks in one process, called from any thread, in any order, open or closed."""

    def __init__(self) -> None:
        super().__init__()
        self.caller = Caller()
        self.links: list[Link] = []
        self.handles: list[holdfast.Handle] = []
        self.models: list[DistributedDataParallel] = []
        self.pending: list[tuple[int, Pending]] = []

    @initialize(mode=_MODES)
    def join(self, mode: dict[str, Any]) -> None:
        config = Config(**{**_BRISK, **mode})
        links = join_all(self.caller, 3, config)
        assert all(links), "a correct job did not form"
        self.links = [link for link in links if link is not None]
        for link in self.links:
            model = small_model()
            resolved = ResolvedConfig(config, {})
            self.models.append(model)
            self.handles.append(holdfast.Handle(model, None, link, resolved, on_detach=lambda: None))

    def _do(self, here: bool, what: str, function: Any) -> Any:
        return self.caller.call(what, function) if here else self.caller.spawn(what, function)

    # -- operations

    @rule(
        rank=odd.ranks, name=odd.tensor_names, exact=st.booleans(), layout=st.one_of(st.just(0), odd.strange_integers)
    )
    def start(self, rank: int, name: str, exact: bool, layout: int) -> None:
        tensor = odd.TENSORS[name]()
        pending = self.caller.call(
            f"{rank}: start {name!r} {exact=} {layout=}",
            lambda: self.handles[rank].reducer.start(memory_of(tensor), layout=layout, exact=exact),
        )
        if pending is not None:
            self.pending.append((rank, pending))

    @rule(name=odd.tensor_names, exact=st.booleans())
    def start_everywhere(self, name: str, exact: bool) -> None:
        for rank in range(3):
            self.start(rank, name, exact, 0)

    @rule(which=st.integers(0, 10), rank=odd.ranks, here=st.booleans(), again=st.booleans())
    def finish(self, which: int, rank: int, here: bool, again: bool) -> None:
        """Also what another rank started, and what was finished before."""
        if not self.pending:
            return
        owner, pending = self.pending[which % len(self.pending)]
        if not again:
            self.pending.remove((owner, pending))
        asked = rank if which == 10 else owner
        self._do(
            here,
            f"{asked}: finish {pending.operation} of {owner}",
            lambda: self.handles[asked].bucket_finished(pending, NOTHING, NOTHING),
        )

    @rule(which=st.integers(0, 10))
    def abandon(self, which: int) -> None:
        if self.pending:
            rank, pending = self.pending[which % len(self.pending)]
            self.caller.call(
                f"{rank}: abandon {pending.operation}", lambda: self.handles[rank].reducer.abandon(pending)
            )

    @rule(rank=odd.ranks, deadline_ms=odd.waits_ms, here=st.booleans())
    def barrier(self, rank: int, deadline_ms: float, here: bool) -> None:
        self._do(here, f"{rank}: barrier {deadline_ms}", lambda: Barrier(self.handles[rank]._link).wait(deadline_ms))

    # -- notes

    @rule(
        rank=odd.ranks,
        peer=st.one_of(odd.ranks, odd.strange_integers),
        channel=st.one_of(st.just(5), odd.strange_integers),
        content=odd.notes,
        deadline_s=odd.waits_s,
        wait_s=odd.waits_s,
        here=st.booleans(),
    )
    def note(
        self, rank: int, peer: int, channel: int, content: bytes, deadline_s: float, wait_s: float, here: bool
    ) -> None:
        def send_and_wait() -> None:
            ticket = self.links[rank].send_note(peer, channel, content, deadline_s)
            self.links[rank].finish_note(peer, ticket, wait_s)

        self._do(
            here, f"{rank}: note to {peer} on {channel}, {len(content)} bytes, {deadline_s} {wait_s}", send_and_wait
        )

    @rule(rank=odd.ranks, content=st.sampled_from(sorted(odd.WRONG_CONTENTS)))
    def note_of_nonsense(self, rank: int, content: str) -> None:
        peer, wrong = (rank + 1) % 3, odd.WRONG_CONTENTS[content]
        self.caller.call(f"{rank}: note of {content}", lambda: self.links[rank].send_note(peer, 5, wrong, 0.1))

    @rule(rank=odd.ranks, ticket=odd.strange_integers, wait_s=odd.waits_s)
    def finish_note_never_sent(self, rank: int, ticket: int, wait_s: float) -> None:
        self.caller.call(
            f"{rank}: finish note {ticket} {wait_s}", lambda: self.links[rank].finish_note(1, ticket, wait_s)
        )

    @rule(rank=odd.ranks, channel=st.one_of(st.just(5), odd.strange_integers), wait_s=odd.waits_s, here=st.booleans())
    def receive_note(self, rank: int, channel: int, wait_s: float, here: bool) -> None:
        self._do(here, f"{rank}: receive {channel} {wait_s}", lambda: self.links[rank].receive_note(channel, wait_s))

    # -- looking and setting

    @rule(rank=odd.ranks, from_operation=odd.strange_integers, stage_ms=st.one_of(odd.waits_ms, odd.not_numbers))
    def publish(self, rank: int, from_operation: int, stage_ms: Any) -> None:
        self.caller.call(
            f"{rank}: publish {from_operation} {stage_ms}",
            lambda: self.links[rank].publish(
                from_operation=from_operation, stage_ms=stage_ms, usual_stage_ms=stage_ms, credit=0
            ),
        )

    @rule(rank=odd.ranks, here=st.booleans())
    def look(self, rank: int, here: bool) -> None:
        handle, link = self.handles[rank], self.links[rank]
        for what in (
            link.snapshot,
            link.gone_peers,
            link.require_open,
            handle.summary,
            handle.explain,
            handle.outcomes,
        ):
            self._do(here, f"{rank}: {what.__name__}", what)

    @rule(rank=odd.ranks, wait_s=odd.waits_s)
    def wait_joined(self, rank: int, wait_s: float) -> None:
        self.caller.call(f"{rank}: wait_joined {wait_s}", lambda: self.links[rank].wait_joined(wait_s))

    @rule(rank=odd.ranks, state=odd.states)
    def load_state(self, rank: int, state: Any) -> None:
        self.caller.call(f"{rank}: load_state_dict {state!r}", lambda: self.handles[rank].load_state_dict(state))

    # -- collectives, by some or by all

    @rule(ranks=st.sets(odd.ranks, min_size=1), save=st.booleans())
    def synchronize(self, ranks: set[int], save: bool) -> None:
        for rank in ranks:
            handle = self.handles[rank]
            self.caller.spawn(f"{rank}: synchronize", handle.state_dict if save else handle.synchronize)

    @rule(rank=odd.ranks, train=st.booleans())
    def forward(self, rank: int, train: bool) -> None:
        self.caller.call(f"{rank}: forward", lambda: self.models[rank].train(train)(torch.ones(2, 3)))

    # -- ends

    @rule(rank=odd.ranks, here=st.booleans())
    def detach(self, rank: int, here: bool) -> None:
        self._do(here, f"{rank}: detach", self.handles[rank].detach)

    @rule(rank=odd.ranks, here=st.booleans())
    def close(self, rank: int, here: bool) -> None:
        self._do(here, f"{rank}: close", self.links[rank].close)

    @rule()
    def wait_for_threads(self) -> None:
        self.caller.join()

    def teardown(self) -> None:
        for link in self.links:
            self.caller.spawn("close", link.close)
        self.caller.join()
