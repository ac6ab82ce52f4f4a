"""A job that checks itself while it is attacked: exact sums and bounded means in turn, every element compared.

Rank r holds (r + 1) * ((i + operation) % 251) at element i. Sums of that are exact, and every element of a mean shows
which contributions it stands for.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from rank_processes import Member, RankProcesses

from holdfast import _native
from holdfast.bridge import rendezvous
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.outcome import Outcome
from holdfast.reduce.pending import Memory
from holdfast.reduce.transpose import TransposeAllReduce

BOARD = "join/hostile"
_RELATIVE_TOLERANCE = 1e-5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Plan:
    """What every honest rank is to do."""

    num_ranks: int
    """All of them, a hostile seat included."""
    total: int = 3_000
    num_operations: int | None = None
    """None: until the test says where to stop."""
    relays: Mapping[int, int] = field(default_factory=dict)
    """Ports of the attacker that stand in for ranks."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> Config:
        defaults: dict[str, Any] = {
            "join_timeout_s": 30.0,
            "deadline_ms": 400.0,
            "exact_deadline_ms": 20_000.0,
            "datagram_bytes": 1472,
            "shared_memory": False,
            # Whoever sits in a hostile seat takes no part in what the others agree on.
            "uneven_shards": False,
            "hadamard": "off",
        }
        return Config(**{**defaults, **self.settings})


@dataclass
class Account:
    """What one rank has seen."""

    operations: int = 0
    wrong: list[str] = field(default_factory=list)
    """Operations with an element that nothing explains, described."""
    incomplete: int = 0
    """Bounded operations that lack contributions, and say so."""
    late: Counter[int] = field(default_factory=Counter)
    """How often each peer was named as the one of which something did not arrive."""
    errors: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)
    ended_at: list[float] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------- in a rank


class Rerouted:
    """A Store that names the attacker's relays as the addresses of other ranks."""

    def __init__(self, store: dist.Store, relays: Mapping[int, int]) -> None:
        self._store = store
        self._port_of = {f"address/{rank}": port for rank, port in relays.items()}

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def get(self, key: str) -> bytes:
        value = bytes(self._store.get(key))
        if key not in self._port_of:
            return value
        place = _native.Whereabouts.decode(value)
        assert place is not None
        return _native.Whereabouts(address=place.address, port=self._port_of[key], process=place.process).encode()


def honest_rank(member: Member, plan: Plan) -> Account:
    link = rendezvous.join(
        Rerouted(dist.PrefixStore(BOARD, member.store), plan.relays),
        rank=member.rank,
        num_ranks=plan.num_ranks,
        config=plan.config(),
        step_bytes=0,
    )
    reduce = TransposeAllReduce(link)
    account = Account()
    try:
        member.say(f"joined/{member.rank}")
        stop_at = plan.num_operations
        for number in count():
            order = f"order/{number}"
            while not member.store.check([order]):
                if stop_at is not None and account.operations >= stop_at:
                    time.sleep(0.002)
                else:
                    one_operation(reduce, plan, account)
            verb, _, argument = member.store.get(order).decode().partition(" ")
            if verb == "stop_at":
                stop_at = int(argument)
            elif verb == "tell":
                member.store.set(f"{order}/{member.rank}", json.dumps(told(link, account)))
            else:
                return account
    finally:
        link.close()
    raise AssertionError("orders never end")


def one_operation(reduce: TransposeAllReduce, plan: Plan, account: Account) -> None:
    number, rank = account.operations, reduce.link.rank
    exact = number % 2 == 0
    values = gradient(rank, number, plan.total)
    memory = Memory(values.ctypes.data, len(values), _native.Format.f32, values)
    account.operations += 1
    try:
        outcome = reduce.finish(reduce.start(memory, exact=exact, average=not exact))
    except HoldfastError as error:
        account.errors.append((number, type(error).__name__, tuple(error.peers)))
    else:
        account.late.update(outcome.late_peers)
        account.incomplete += not outcome.complete
        explained = exact_sum(values, number, plan) if exact else explained_mean(values, number, plan, outcome)
        if not explained.all():
            where = np.flatnonzero(~explained)
            told = f"{values[where[0]]} at element {where[0]}, {len(where)} such elements, missing {outcome.missing}"
            account.wrong.append(f"{told}; {outcome.describe()}")
    changes = reduce.link.engine.take_peer_changes()
    account.deaths += [change.peer for change in changes if change.state == _native.PeerState.dead]
    account.ended_at.append(time.monotonic())


def told(link: Any, account: Account) -> dict[str, Any]:
    snapshot = link.snapshot()
    return {
        "operations": account.operations,
        "drops": snapshot.drops,
        "kernel_drops": snapshot.kernel_drops,
        "open_operations": snapshot.open_operations,
        "early_bytes": snapshot.early_bytes,
        "wrong": account.wrong,
        "errors": account.errors,
        "sent": {str(peer.rank): peer.datagrams_sent for peer in snapshot.peers},
        "received": {str(peer.rank): peer.datagrams_received for peer in snapshot.peers},
    }


# ---------------------------------------------------------------------------------------------------- what is right


def gradient(rank: int, operation: int, total: int) -> np.ndarray:
    return ((rank + 1) * ((np.arange(total) + operation) % 251)).astype(np.float32)


def exact_sum(values: np.ndarray, operation: int, plan: Plan) -> np.ndarray:
    return values == np.sum([gradient(rank, operation, plan.total) for rank in range(plan.num_ranks)], axis=0)


def explained_mean(values: np.ndarray, operation: int, plan: Plan, outcome: Outcome) -> np.ndarray:
    """Zero where it is reported missing; elsewhere the owner's part and the mean of some others, scaled to all.

    An owner that does not call, or whose call fails, serves the others without a part of its own.
    """
    missing = np.zeros(plan.total, bool)
    for begin, end in outcome.missing:
        missing[begin:end] = True
    explained = missing & (values == 0)
    parts = [gradient(rank, operation, plan.total).astype(np.float64) for rank in range(plan.num_ranks)]
    for owner, (begin, end) in shards(operation, plan):
        others = [part[begin:end] for rank, part in enumerate(parts) if rank != owner]
        fewest = len(others) if outcome.complete else 1
        groups = [group for size in range(fewest, len(others) + 1) for group in combinations(others, size)]
        for group in groups:
            mean = np.mean(group, axis=0)
            candidates = [(parts[owner][begin:end] + len(others) * mean) / plan.num_ranks]
            candidates += [] if outcome.complete else [mean]
            for value in candidates:
                close = np.isclose(values[begin:end], value, rtol=_RELATIVE_TOLERANCE)
                explained[begin:end] |= close & ~missing[begin:end]
    return explained


def shards(operation: int, plan: Plan) -> Iterator[tuple[int, tuple[int, int]]]:
    base, larger = divmod(plan.total, plan.num_ranks)
    begin = 0
    for shard in range(plan.num_ranks):
        end = begin + base + (shard < larger)
        yield (shard - operation) % plan.num_ranks, (begin, end)
        begin = end


# ---------------------------------------------------------------------------------------------------- in the test


class Watched:
    """The honest ranks, as the test process sees and steers them."""

    def __init__(self, ranks: RankProcesses, num_honest: int) -> None:
        self._ranks = ranks
        self.num_honest = num_honest
        self._orders = count()

    def wait_joined(self) -> None:
        for rank in range(self.num_honest):
            self._ranks.hear(f"joined/{rank}")

    def tell(self) -> list[dict[str, Any]]:
        """What every rank counts, now."""
        order = self._give("tell")
        return [json.loads(self._answer(f"{order}/{rank}")) for rank in range(self.num_honest)]

    def stop(self, margin: int = 20) -> list[dict[str, Any]]:
        """All ranks end with the same operation, more than any of them begins while it is told so.

        Answers when nothing is under way any more.
        """
        last = max(told["operations"] for told in self.tell()) + margin
        self._give(f"stop_at {last}")
        return self.wait_for_operation(last)

    def wait_for_operation(self, number: int) -> list[dict[str, Any]]:
        """Waits until all ranks stand before this one, where they were told to stop."""
        give_up_at = time.monotonic() + 60
        while True:
            answers = self.tell()
            if all(told["operations"] == number for told in answers):
                return answers
            if time.monotonic() > give_up_at:
                raise AssertionError(f"not all ranks reached operation {number}: {[t['operations'] for t in answers]}")
            time.sleep(0.02)

    def results(self) -> list[Account]:
        self._give("end")
        return list(self._ranks.results())

    def resident_bytes(self) -> list[int]:
        pids = [process.pid for process in self._ranks.processes]
        return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES for pid in pids]

    def _give(self, text: str) -> str:
        order = f"order/{next(self._orders)}"
        self._ranks.store.set(order, text)
        return order

    def _answer(self, key: str) -> bytes:
        give_up_at = time.monotonic() + 60
        while not self._ranks.store.check([key]):
            if time.monotonic() > give_up_at or not all(process.is_alive() for process in self._ranks.processes):
                self._ranks.results()  # raises what they failed with
                raise AssertionError(f"nobody answered {key}")
            time.sleep(0.002)
        return bytes(self._ranks.store.get(key))
