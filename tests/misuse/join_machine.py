"""Settings at random, and jobs formed from them."""

from __future__ import annotations

import threading
from typing import Any

import arguments as odd
import torch.distributed as dist
from caller import Caller
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from holdfast.bridge import rendezvous
from holdfast.config import Config, resolve
from holdfast.link.link import Link


def join_all(caller: Caller, num_ranks: int, *configs: Config) -> list[Link | None]:
    """One thread a rank; the last configuration is for all further ranks too."""
    store = dist.HashStore()
    links: list[Link | None] = [None] * num_ranks
    done = threading.Barrier(num_ranks + 1)

    def join(rank: int) -> None:
        config = configs[min(rank, len(configs) - 1)]
        try:
            links[rank] = rendezvous.join(store, rank=rank, num_ranks=num_ranks, config=config, step_bytes=0)
        finally:
            done.wait(30)

    caller.join()
    for rank in range(num_ranks):
        caller.spawn(f"{rank}: join", lambda rank=rank: join(rank))
    caller.call("wait for all to have joined", lambda: done.wait(30))
    caller.join()
    return links


class JoinAndConfigure(RuleBasedStateMachine):
    """Settings at random, and jobs formed from them: by one rank, or by two that disagree."""

    def __init__(self) -> None:
        super().__init__()
        self.caller = Caller()

    @rule(settings=odd.settings)
    def configure(self, settings: dict[str, Any]) -> None:
        self.caller.call(f"Config {settings}", lambda: Config(**settings))

    @rule(settings=odd.settings)
    def resolve(self, settings: dict[str, Any]) -> None:
        self.caller.call(f"resolve {settings}", lambda: resolve(settings))
        environment = {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
        self.caller.call(f"resolve the environment {environment}", lambda: resolve({}, environment))

    @rule(settings=odd.settings, others=st.one_of(st.none(), odd.settings))
    def join(self, settings: dict[str, Any], others: dict[str, Any] | None) -> None:
        given = [settings] if others is None else [settings, others]
        configs = [self.caller.call(f"resolve {one}", lambda one=one: resolve(one)) for one in given]
        if None in configs:
            return
        # What remains open to chance: everything but how long to wait for a rank that never comes.
        usable = [Config(**{**vars(one.config), "join_timeout_s": 1.0}) for one in configs]
        for link in join_all(self.caller, len(usable), *usable):
            if link is not None:
                self.caller.call("close", link.close)

    @rule(rank=odd.strange_integers, num_ranks=odd.strange_integers.filter(lambda number: number < 100))
    def join_as_nobody(self, rank: int, num_ranks: int) -> None:
        config = Config(join_timeout_s=0.1)
        link = self.caller.call(
            f"join as {rank} of {num_ranks}",
            lambda: rendezvous.join(dist.HashStore(), rank=rank, num_ranks=num_ranks, config=config, step_bytes=0),
        )
        if link is not None:
            self.caller.call("close", link.close)
