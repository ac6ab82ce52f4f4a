"""The attacker's program (`tests/native/hostile`) as Python drives it: a command a line, an answer a line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from holdfast import _native
from holdfast.bridge import rendezvous
from holdfast.config import Config
from holdfast.link import interface

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
_STORE_LIMIT_S = 30.0


class AttackFailed(AssertionError):
    """The attacker could not do what it was told."""


def program() -> Path:
    """Where `make native-tests` puts it; HOSTILE_PEER names another."""
    path = Path(os.environ.get("HOSTILE_PEER", ROOT / "build" / "python" / "hostile_peer"))
    if not path.exists():
        raise AttackFailed(f"{path} is not built: run `make native-tests`")
    return path


class Attacker:
    """A running attacker. Leaving the `with` block ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def order(
        self, *words: object, limit_s: float = 60.0, meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """Sends a command and waits for its answer; `meanwhile` is called ten times a second until then."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(" ".join(map(str, words)) + "\n")
        give_up_at = time.monotonic() + limit_s
        while not select.select([stdout], [], [], 0.1)[0]:
            if time.monotonic() > give_up_at:
                raise AttackFailed(f"no answer to {words[0]} within {limit_s:g} s")
            if meanwhile is not None:
                meanwhile()
        answer = json.loads(stdout.readline() or '{"error": "the attacker has ended"}')
        if "error" in answer:
            raise AttackFailed(answer["error"])
        return dict(answer)

    # -- what it needs to know --------------------------------------------------------------------------------------

    def open_relays(self, num_ranks: int) -> dict[int, int]:
        """A port per rank at which the attacker will sit between that rank and the others."""
        return {rank: self.order("relay", HOST)["port"] for rank in range(num_ranks)}

    def learn_job(
        self, store: dist.Store, honest: range, num_ranks: int, relays: dict[int, int] | None = None
    ) -> bytes:
        """Reads in the Store what everybody can read there. The job key, too: outsiders do not use it."""
        key = _read(store, "key/0")
        job = int.from_bytes(_native.key_fingerprint(key)[:4], "big")
        self.order("job", job, 0, num_ranks, 1472)
        for rank in honest:
            place = _native.Whereabouts.decode(_read(store, f"address/{rank}"))
            assert place is not None
            self.order("target", rank, place.address, place.port, place.process.hex())
        for rank, port in (relays or {}).items():
            self.order("pass_on", port, rank)
        return key

    def take_seat(
        self,
        store: dist.Store,
        *,
        rank: int,
        num_ranks: int,
        config: Config,
        total: int,
        num_operations: int,
        exact_deadline_ms: int,
        only_heartbeats: bool = False,
    ) -> None:
        """Joins the job as one of its ranks. Returns when all honest ranks have been heard."""
        port = self.order("seat", HOST)["port"]
        key = _read(store, "key/0")
        process = _native.random_bytes(16)
        introduction = _native.Introduction(
            protection=getattr(_native.Protection, config.protection),
            deterministic=config.deterministic,
            measures_deadline=config.deadline_ms is None,
            uneven_shards=config.uneven_shards,
            hadamard=getattr(_native.HadamardChoice, config.hadamard_in_force),
            hierarchy=0,
            warmup_operations=config.warmup_operations,
            key_fingerprint=_native.key_fingerprint(key),
            host_identity=interface.host_identity(),
        )
        store.set(f"host/{rank}", introduction.encode())
        store.set(f"address/{rank}", _native.Whereabouts(address=HOST, port=port, process=process).encode())
        store.set(f"datagram/{rank}", _native.DatagramLimit(size=1472).encode())
        self.learn_job(store, range(rank), num_ranks)
        seat = (rank, process.hex(), key.hex(), total, num_operations, exact_deadline_ms, int(only_heartbeats))
        self.order("sit", *seat)
        give_up_at = time.monotonic() + _STORE_LIMIT_S
        while not self.order("status")["joined"]:
            if time.monotonic() > give_up_at:
                raise AttackFailed("the honest ranks did not answer the attacker's seat")
            time.sleep(0.01)
        store.set(f"joined/{rank}", rendezvous.said_when_joined(config))


def _read(store: dist.Store, key: str) -> bytes:
    give_up_at = time.monotonic() + _STORE_LIMIT_S
    while not store.check([key]):
        if time.monotonic() > give_up_at:
            raise AttackFailed(f"no rank wrote {key!r} to the Store")
        time.sleep(0.01)
    return bytes(store.get(key))
