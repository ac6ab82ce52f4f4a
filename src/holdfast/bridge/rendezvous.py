"""How ranks find each other: through the process group's Store, once, at join.

Every rank writes which host it is on; then which address it listens on; then how large a datagram its paths allow.
After that the Store is not used any more. What others wrote is untrusted: `native/core/join.h` reads it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast import _native
from holdfast.config import Config
from holdfast.errors import ConfigError, JoinError, KeyMismatch, LoopbackAcrossHosts, PeerNeverJoined
from holdfast.link import interface
from holdfast.link.link import Agreement, Link, Rank, open_engine

logger = logging.getLogger(__name__)

_POLL_S = 0.02
_KEY_BYTES = 32


class Store(Protocol):
    """The part of `torch.distributed.Store` that is needed here."""

    def set(self, key: str, value: Any, /) -> None: ...  # bytes, though torch's own annotation says str
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


_Message = TypeVar("_Message", _native.Introduction, _native.Whereabouts, _native.DatagramLimit)


def join(
    store: Store, *, rank: int, num_ranks: int, config: Config, step_bytes: int, epoch: int = 0, record: bool = False
) -> Link:
    """Finds all peers, agrees on keys and sizes, and returns when every path has answered."""
    if not 0 <= rank < num_ranks:
        raise JoinError(f"there is no rank {rank} in a job of {num_ranks}", what_to_try="ranks count from 0")
    if num_ranks > _native.MAX_RANKS:
        raise ConfigError(
            f"{num_ranks} ranks, and a job has at most {_native.MAX_RANKS}", what_to_try="fewer ranks per job"
        )
    board = _Board(store, rank, num_ranks, time.monotonic() + config.join_timeout_s)
    job_key = _job_key(board, config)
    introductions = board.exchange(
        "host",
        _native.Introduction(
            protection=getattr(_native.Protection, config.protection),
            deterministic=config.deterministic,
            measures_deadline=config.deadline_ms is None,
            warmup_operations=config.warmup_operations,
            key_fingerprint=_native.key_fingerprint(job_key),
            host_identity=interface.host_identity(),
        ),
    )
    _check_agreement(introductions, rank)
    identities = [introduction.host_identity for introduction in introductions]
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
        own = _native.Whereabouts(address=engine.host, port=engine.port, process=_native.random_bytes(16))
        entries = board.exchange("address", own)
        # The own process id decides the own keys: whoever can write to the Store must not be able to choose it.
        entries[rank] = own
        _require_numeric(entries)
        ranks = [
            Rank(entry.address, entry.port, entry.process, identity)
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
        board.publish("joined", b"")
        # Nobody starts before everybody can hear everybody. Whoever cannot hear a dead rank does not join either: the
        # dead one is to blame.
        board.wait_for_all("joined", suspects=lambda: link.peers_in(_native.PeerState.dead))
    except BaseException:
        link.close()
        raise
    return link


class _Board:
    """One-shot exchanges through the Store, under one deadline."""

    def __init__(self, store: Store, rank: int, num_ranks: int, deadline: float) -> None:
        self.store = store
        self.rank = rank
        self.num_ranks = num_ranks
        self.deadline = deadline
        self._started = time.monotonic()

    def seconds_left(self) -> float:
        return max(0.1, self.deadline - time.monotonic())

    def exchange(self, topic: str, own: _Message) -> list[_Message]:
        self.publish(topic, own.encode())
        messages = [type(own).decode(octets) for octets in self.wait_for_all(topic)]
        unreadable = [rank for rank, message in enumerate(messages) if message is None]
        if unreadable:
            raise JoinError(
                f"ranks announced something this version cannot read (step {topic!r})",
                peers=unreadable,
                what_to_try="the same version of Holdfast on every rank, and nobody else writing to the Store",
            )
        return [message for message in messages if isinstance(message, type(own))]

    def wait_for_all(self, topic: str, *, suspects: Callable[[], set[int]] = set) -> list[bytes]:
        """Every rank's entry. Of those missing at the deadline, the error names the suspects, or all if there are none."""
        everybody = range(self.num_ranks)
        return [self._read(topic, rank, everybody, suspects) for rank in everybody]

    def publish(self, topic: str, value: bytes) -> None:
        with _store_errors_named():
            self.store.set(f"{topic}/{self.rank}", value)

    def read(self, topic: str, rank: int) -> bytes:
        return self._read(topic, rank, [rank])

    def _read(self, topic: str, rank: int, publishers: Sequence[int], suspects: Callable[[], set[int]] = set) -> bytes:
        with _store_errors_named():
            # Polling instead of Store.wait: it can be interrupted, and it can say who is missing.
            while not self.store.check([f"{topic}/{rank}"]):
                if time.monotonic() > self.deadline:
                    missing = [peer for peer in publishers if not self.store.check([f"{topic}/{peer}"])]
                    missing = [peer for peer in missing if peer in suspects()] or missing
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
        board.publish("key", _native.random_bytes(_KEY_BYTES) if own is None else b"")
    if own is not None:
        return own
    published = board.read("key", 0)
    # Nothing published: rank 0 has a key file and this rank has none. Any other key makes that a KeyMismatch for all.
    return published if len(published) == _KEY_BYTES else _native.random_bytes(_KEY_BYTES)


def _read_key(path: Path) -> bytes:
    recipe = "`openssl rand -hex 32 > job.key`, copied to every host"
    try:
        key = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}", what_to_try=recipe) from error
    except ValueError as error:
        raise ConfigError(f"the key file {path} does not hold hexadecimal digits", what_to_try=recipe) from error
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"the key in {path} has {len(key)} bytes, not {_KEY_BYTES}", what_to_try=recipe)
    if path.stat().st_mode & 0o077:
        logger.warning("the key file %s can be read by others; `chmod 600` it", path)
    return key


def _check_agreement(introductions: Sequence[_native.Introduction], rank: int) -> None:
    own = introductions[rank]
    strangers = [peer for peer, other in enumerate(introductions) if other.key_fingerprint != own.key_fingerprint]
    if strangers:
        raise KeyMismatch(
            "ranks hold different job keys", peers=strangers, what_to_try="give all ranks the same key_file"
        )
    for setting in ("protection", "deterministic", "deadline", "warmup_operations"):
        values = [_setting(introduction, setting) for introduction in introductions]
        peers = [peer for peer, value in enumerate(values) if value != values[rank]]
        if peers:
            raise JoinError(
                f"ranks differ in {setting}: {values[rank]!r} here, {values[peers[0]]!r} there",
                peers=peers,
                what_to_try=f"the same {setting} on every rank",
            )


def _setting(introduction: _native.Introduction, name: str) -> object:
    if name == "protection":
        return introduction.protection.name
    if name == "deadline":
        return "measured" if introduction.measures_deadline else "given"
    return getattr(introduction, name)


def _require_numeric(entries: Sequence[_native.Whereabouts]) -> None:
    for peer, entry in enumerate(entries):
        try:
            ipaddress.ip_address(entry.address.partition("%")[0])
        except ValueError as error:
            raise JoinError(
                f"{entry.address!r} is not an address", peers=[peer], what_to_try="nobody else writing to the Store"
            ) from error


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
    limits = board.exchange("datagram", _native.DatagramLimit(size=largest))
    return min(limit.size for limit in limits)
