"""How ranks find each other: through the process group's Store, once, at join.

Every rank writes which host it is on; then which address it listens on; then how large a datagram its paths allow.
After that the Store is not used any more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast import _native
from holdfast.config import Config
from holdfast.errors import ConfigError, JoinError, KeyMismatch, LoopbackAcrossHosts, PeerNeverJoined
from holdfast.link import interface
from holdfast.link.link import Agreement, Link, Rank, open_engine

logger = logging.getLogger(__name__)

_POLL_S = 0.02
_PROTOCOL = 1


class Store(Protocol):
    """The part of `torch.distributed.Store` that is needed here."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


def join(
    store: Store, *, rank: int, num_ranks: int, config: Config, step_bytes: int, epoch: int = 0, record: bool = False
) -> Link:
    """Finds all peers, agrees on keys and sizes, and returns when every path has answered."""
    board = _Board(store, rank, num_ranks, time.monotonic() + config.join_timeout_s)
    job_key = _job_key(board, config)
    hosts = board.exchange(
        "host",
        {
            "identity": interface.host_identity(),
            "protocol": _PROTOCOL,
            "protection": config.protection,
            "fingerprint": _native.key_fingerprint(job_key).hex(),
            "deterministic": config.deterministic,
            "deadline": "measured" if config.deadline_ms is None else "given",
            "warmup_operations": config.warmup_operations,
        },
    )
    _check_agreement(hosts, rank)
    identities = [host["identity"] for host in hosts]
    single_host = len(set(identities)) == 1
    if config.protection == "insecure":
        _allow_insecure(single_host)

    chosen = interface.choose_address(
        interface=config.interface, single_host=single_host, master=os.environ.get("MASTER_ADDR")
    )
    logger.info("[rank %d] using %s on %s (%s)", rank, chosen.address, chosen.interface or "?", chosen.reason)
    port = config.port + identities[:rank].count(identities[rank]) if config.port else 0
    engine = open_engine(config, address=chosen.address, port=port)
    try:
        own = {"host": engine.host, "port": engine.port, "process": _native.random_bytes(16).hex()}
        entries = board.exchange("address", own)
        # The own process id decides the own keys: whoever can write to the Store must not be able to choose it.
        entries[rank] = own
        ranks = [
            Rank(entry["host"], entry["port"], bytes.fromhex(entry["process"]), identity)
            for entry, identity in zip(entries, identities, strict=True)
        ]
        _refuse_loopback_between_hosts(ranks, rank)
        agreement = Agreement(
            rank=rank,
            ranks=ranks,
            job=int.from_bytes(_native.key_fingerprint(job_key)[:4], "big"),
            epoch=epoch,
            job_key=job_key,
            datagram_bytes=_agree_on_datagram(board, ranks, rank, config),
        )
        link = Link(engine, agreement, config, step_bytes=step_bytes, record=record)
    except BaseException:
        engine.close()
        raise
    try:
        link.wait_joined(board.seconds_left())
        board.exchange("joined", True)  # nobody starts before everybody can hear everybody
    except BaseException:
        link.close()
        raise
    return link


class _Board:
    """One-shot exchanges of JSON values through the Store, under one deadline."""

    def __init__(self, store: Store, rank: int, num_ranks: int, deadline: float) -> None:
        self.store = store
        self.rank = rank
        self.num_ranks = num_ranks
        self.deadline = deadline
        self._started = time.monotonic()

    def seconds_left(self) -> float:
        return max(0.1, self.deadline - time.monotonic())

    def exchange(self, topic: str, value: Any) -> list[Any]:
        self.publish(topic, json.dumps(value))
        everybody = range(self.num_ranks)
        return [json.loads(self._read(topic, rank, everybody)) for rank in everybody]

    def publish(self, topic: str, value: str) -> None:
        with _store_errors_named():
            self.store.set(f"{topic}/{self.rank}", value)

    def read(self, topic: str, rank: int) -> str:
        return self._read(topic, rank, [rank]).decode()

    def _read(self, topic: str, rank: int, publishers: Sequence[int]) -> bytes:
        with _store_errors_named():
            # Polling instead of Store.wait: it can be interrupted, and it can say who is missing.
            while not self.store.check([f"{topic}/{rank}"]):
                if time.monotonic() > self.deadline:
                    missing = [peer for peer in publishers if not self.store.check([f"{topic}/{peer}"])]
                    raise PeerNeverJoined(
                        f"{len(missing)} of {self.num_ranks} ranks did not announce themselves (step {topic!r})",
                        peers=missing,
                        elapsed_ms=(time.monotonic() - self._started) * 1e3,
                        what_to_try="check that those ranks run and also call holdfast.attach, or raise join_timeout_s",
                    )
                time.sleep(_POLL_S)
            return self.store.get(f"{topic}/{rank}")


@contextlib.contextmanager
def _store_errors_named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's DistError is one
        raise JoinError(
            f"the Store of the process group does not answer: {error}",
            what_to_try="check that the process that hosts it (mostly rank 0) still runs",
        ) from error


def _job_key(board: _Board, config: Config) -> bytes:
    own = _read_key(Path(config.key_file)) if config.key_file is not None else None
    if board.rank == 0:
        board.publish("key", _native.random_bytes(32).hex() if own is None else "")
    if own is not None:
        return own
    # Nothing published: rank 0 has a key file and this rank has none. Any other key makes that a KeyMismatch for all.
    return bytes.fromhex(board.read("key", 0)) or _native.random_bytes(32)


def _read_key(path: Path) -> bytes:
    recipe = "`openssl rand -hex 32 > job.key`, copied to every host"
    try:
        key = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}", what_to_try=recipe) from error
    except ValueError as error:
        raise ConfigError(f"the key file {path} does not hold hexadecimal digits", what_to_try=recipe) from error
    if len(key) != 32:
        raise ConfigError(f"the key in {path} has {len(key)} bytes, not 32", what_to_try=recipe)
    if path.stat().st_mode & 0o077:
        logger.warning("the key file %s can be read by others; `chmod 600` it", path)
    return key


def _check_agreement(hosts: Sequence[dict[str, Any]], rank: int) -> None:
    def differing(field: str) -> list[int]:
        return [peer for peer, host in enumerate(hosts) if host[field] != hosts[rank][field]]

    if peers := differing("fingerprint"):
        raise KeyMismatch("ranks hold different job keys", peers=peers, what_to_try="give all ranks the same key_file")
    for field in ("protocol", "protection", "deterministic", "deadline", "warmup_operations"):
        if peers := differing(field):
            raise JoinError(
                f"ranks differ in {field}: {hosts[rank][field]!r} here, {hosts[peers[0]][field]!r} there",
                peers=peers,
                what_to_try=f"the same {field} on every rank",
            )


def _allow_insecure(single_host: bool) -> None:
    if not single_host:
        raise ConfigError(
            "protection 'insecure' is for loopback only, and this job spans several hosts",
            what_to_try="'authenticated', which costs little",
        )
    logger.warning("datagrams are neither encrypted nor authenticated: anyone on this host can forge gradients")


def _refuse_loopback_between_hosts(ranks: Sequence[Rank], rank: int) -> None:
    if len({entry.host_identity for entry in ranks}) == 1:
        return
    offenders = [peer for peer, entry in enumerate(ranks) if interface.is_loopback(entry.host)]
    if offenders:
        raise LoopbackAcrossHosts(
            f"the job spans several hosts, but {ranks[offenders[0]].host} is a loopback address",
            peers=offenders,
            what_to_try="set MASTER_ADDR to an address the other hosts route to, or `interface` on those ranks",
        )


def _agree_on_datagram(board: _Board, ranks: Sequence[Rank], rank: int, config: Config) -> int:
    if config.datagram_bytes is not None:
        largest = config.datagram_bytes
    else:
        largest = interface.datagram_bytes_for(entry.host for peer, entry in enumerate(ranks) if peer != rank)
    return int(min(board.exchange("datagram", largest)))
