"""How ranks find each other: through the process group's Store, once, at join.

Every rank writes which host it is on; then which address it listens on; then how large a datagram its paths allow.
After that the Store is not used any more. What others wrote is untrusted: `native/core/join.h` reads it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast import _native
from holdfast.bridge.board import Board, Store
from holdfast.bridge.meeting_place import meet_in_shared_memory
from holdfast.codec.packing_speed import measured_speed
from holdfast.config import Config
from holdfast.control.packing import pays_below_bytes_per_s
from holdfast.control.topology import choose_groups, ranks_per_host
from holdfast.errors import ConfigError, JoinError, KeyMismatch, LoopbackAcrossHosts
from holdfast.key_file import KEY_BYTES, RECIPE, UnusableKey, read_key
from holdfast.link import interface
from holdfast.link.link import Agreement, Link, Rank, open_engine

logger = logging.getLogger(__name__)

_BROADCAST = "255.255.255.255"
_ALIKE = ("protection", "deterministic", "deadline", "warmup_operations", "uneven_shards", "hadamard", "hierarchy")
_HIERARCHY_WORDS = ("off", "auto")
# What the core need not know.
_ALIKE_IN_PYTHON = (
    "shared_memory",
    "estimate",
    "loss_feedback",
    "compare_replicas",
    "loss_budget",
    "over_budget",
    "most_skipped_steps",
)


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
    board = Board(store, rank, num_ranks, time.monotonic() + config.join_timeout_s)
    try:
        return _join(board, config=config, step_bytes=step_bytes, epoch=epoch, record=record)
    finally:
        board.close()


def _join(board: Board, *, config: Config, step_bytes: int, epoch: int, record: bool) -> Link:
    rank = board.rank
    job_key = _job_key(board, config)
    introductions = board.exchange(
        "host",
        _native.Introduction(
            protection=getattr(_native.Protection, config.protection),
            deterministic=config.deterministic,
            measures_deadline=config.deadline_ms is None,
            uneven_shards=config.uneven_shards,
            hadamard=getattr(_native.HadamardChoice, config.hadamard_in_force),
            hierarchy=_hierarchy_number(config.hierarchy),
            warmup_operations=config.warmup_operations,
            key_fingerprint=_native.key_fingerprint(job_key),
            host_identity=interface.host_identity(),
        ),
    )
    _check_agreement(introductions, rank)
    identities = [introduction.host_identity for introduction in introductions]
    grouping = choose_groups(config.hierarchy, identities)
    single_host = len(set(identities)) == 1
    # A deadline asks for an average that is there in time; in shared memory it is there when all have come.
    shares = config.shared_memory and config.deadline_ms is None
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
        # The own process id decides the own keys. `exchange` takes no own message from the Store, so that whoever can
        # write there cannot choose it.
        entries = board.exchange("address", own)
        _require_addresses(entries)
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
            num_groups=grouping.num_groups,
            groups_reason=grouping.reason,
            # A recording knows nothing of memory.
            ranks_per_host=ranks_per_host(identities) if config.hierarchy == "off" and shares and not record else 1,
        )
        speed = measured_speed()
        pack_below = pays_below_bytes_per_s(
            config.packing,
            pack_bytes_per_s=speed.pack_bytes_per_s,
            unpack_bytes_per_s=speed.unpack_bytes_per_s,
            saved_ratio=speed.saved_ratio,
        )
        link = Link(engine, agreement, config, step_bytes=step_bytes, record=record, pack_below_bytes_per_s=pack_below)
    except BaseException:
        engine.close()
        raise
    try:
        link.wait_joined(board.seconds_left())
        board.publish("joined", said_when_joined(config))
        # Nobody starts before everybody can hear everybody. Whoever cannot hear a dead rank does not join either: the
        # dead one is to blame.
        joined = board.wait_for_all("joined", suspects=lambda: link.peers_in(_native.PeerState.dead))
        _check_said(joined, rank)
        if single_host and shares and (met := meet_in_shared_memory(board, range(board.num_ranks), 1)) is not None:
            link.enter(*met)
        if agreement.ranks_per_host > 1 and (met := meet_in_shared_memory(board, agreement.host_ranks, 2)) is not None:
            link.enter_host(*met)
    except BaseException:
        link.close()
        raise
    return link


def _job_key(board: Board, config: Config) -> bytes:
    own = _own_key(Path(config.key_file)) if config.key_file is not None else None
    if board.rank == 0:
        board.publish("key", _native.random_bytes(KEY_BYTES) if own is None else b"")
    if own is not None:
        return own
    published = board.read("key", 0)
    # Nothing published: rank 0 has a key file and this rank has none. Any other key makes that a KeyMismatch for all.
    return published if len(published) == KEY_BYTES else _native.random_bytes(KEY_BYTES)


def _own_key(path: Path) -> bytes:
    try:
        key = read_key(path)
    except UnusableKey as problem:
        raise ConfigError(f"the key file {path} {problem}", what_to_try=RECIPE) from problem
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
    for setting in _ALIKE:
        _require_alike(setting, [_setting(introduction, setting) for introduction in introductions], rank)


def said_when_joined(config: Config) -> bytes:
    """What all ranks must have in common beyond what the core compares."""
    return json.dumps({name: getattr(config, name) for name in _ALIKE_IN_PYTHON}).encode()


def _check_said(joined: Sequence[bytes], rank: int) -> None:
    try:
        said = [json.loads(words) for words in joined]
        for setting in _ALIKE_IN_PYTHON:
            _require_alike(setting, [settings[setting] for settings in said], rank)
    except (ValueError, KeyError, TypeError) as error:
        raise JoinError(
            "ranks announced something this version cannot read (step 'joined')",
            what_to_try="the same version of Holdfast on every rank",
        ) from error


def _require_alike(setting: str, values: Sequence[object], rank: int) -> None:
    peers = [peer for peer, value in enumerate(values) if value != values[rank]]
    if peers:
        raise JoinError(
            f"ranks differ in {setting}: {values[rank]!r} here, {values[peers[0]]!r} there",
            peers=peers,
            what_to_try=f"the same {setting} on every rank",
        )


def _hierarchy_number(hierarchy: int | str) -> int:
    return hierarchy if isinstance(hierarchy, int) else _HIERARCHY_WORDS.index(hierarchy)


def _setting(introduction: _native.Introduction, name: str) -> object:
    if name == "protection":
        return introduction.protection.name
    if name == "deadline":
        return "measured" if introduction.measures_deadline else "given"
    if name == "hadamard":
        return introduction.hadamard.name
    if name == "hierarchy" and introduction.hierarchy < len(_HIERARCHY_WORDS):
        return _HIERARCHY_WORDS[introduction.hierarchy]
    return getattr(introduction, name)


def _require_addresses(entries: Sequence[_native.Whereabouts]) -> None:
    for peer, entry in enumerate(entries):
        try:
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            _native.interface_holding(entry.address)  # also reads the scope, which must be known here
            usable = not (address.is_multicast or address.is_unspecified or entry.address == _BROADCAST)
        except (ValueError, RuntimeError):
            usable = False
        if not usable:
            raise JoinError(
                f"{entry.address!r} is not an address that this host can send to",
                peers=[peer],
                what_to_try="`interface` on that rank, and nobody else writing to the Store",
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


def _agree_on_datagram(board: Board, ranks: Sequence[Rank], rank: int, config: Config) -> int:
    if config.datagram_bytes is not None:
        largest = config.datagram_bytes
    else:
        largest = min(
            [interface.LARGEST_DATAGRAM_BYTES]
            + [_datagram_towards(peer, entry.host) for peer, entry in enumerate(ranks) if peer != rank]
        )
    limits = board.exchange("datagram", _native.DatagramLimit(size=largest))
    return min(limit.size for limit in limits)


def _datagram_towards(peer: int, address: str) -> int:
    try:
        return interface.datagram_bytes_for([address])
    except (RuntimeError, ValueError) as error:
        raise JoinError(
            f"no way to {address}: {error}", peers=[peer], what_to_try="a route to it, or another `interface` there"
        ) from error
