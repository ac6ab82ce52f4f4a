"""A joined job: one socket, one reactor thread, and the ranks at the other ends."""

from __future__ import annotations

import contextlib
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast import _native
from holdfast.config import Config
from holdfast.errors import (
    DeadlineExceeded,
    HandleClosed,
    JoinError,
    KeyMismatch,
    OperationError,
    PeerDead,
    PeerUnreachable,
)

logger = logging.getLogger(__name__)

MAX_UNEVEN_RANKS = 64
"""Every rank tells every other what it hears of all: the exchange grows with the square of their number."""

_SMALLEST_EARLY_CAP = 64 << 20


@dataclass(frozen=True)
class Rank:
    """Where a rank can be reached, and which process it is."""

    host: str
    port: int
    process: bytes
    host_identity: str


@dataclass(frozen=True)
class Agreement:
    """What all ranks of a job hold in common."""

    rank: int
    ranks: Sequence[Rank]
    job: int
    epoch: int
    job_key: bytes
    datagram_bytes: int
    num_groups: int = 1
    """Of neighbouring ranks, in which operations are hierarchical; 1: all ranks are one."""
    groups_reason: str = "all ranks are one group"
    ranks_per_host: int = 1
    """Neighbouring ranks that are to meet in shared memory on each of several hosts; 1: none."""

    @property
    def num_ranks(self) -> int:
        return len(self.ranks)

    @property
    def host_ranks(self) -> range:
        """Those of this rank's host, where hosts meet."""
        first = self.rank - self.rank % self.ranks_per_host
        return range(first, first + self.ranks_per_host)

    @property
    def num_shards(self) -> int:
        """Into how many a bucket is divided: by all ranks, or within each group."""
        return self.num_ranks // self.num_groups


def open_engine(config: Config, *, address: str, port: int) -> _native.Engine:
    """Binds the socket, so that its port can be published. A port that is taken is a named error."""
    try:
        engine = _native.Engine(
            host=address,
            port=port,
            receive_buffer_bytes=config.receive_buffer_bytes,
            send_buffer_bytes=config.send_buffer_bytes,
            use_segmentation=config.segmentation,
        )
    except (RuntimeError, OSError, ValueError) as error:
        where = f"{address} port {port}" if port else address
        raise JoinError(
            f"cannot open a UDP socket on {where}: {error}",
            what_to_try="another `port`, or 0 for any free one; `interface` if the address is not this host's",
        ) from error
    if engine.receive_buffer_bytes < config.receive_buffer_bytes:
        logger.warning(
            "the kernel grants a receive buffer of %d KiB instead of %d KiB: peers will keep less in flight. "
            "To raise it: sysctl -w net.core.rmem_max=%d",
            engine.receive_buffer_bytes >> 10,
            config.receive_buffer_bytes >> 10,
            config.receive_buffer_bytes,
        )
    return engine


def _early_cap(step_bytes: int, agreement: Agreement, config: Config) -> int:
    """Room for one step: its results, the sums of the own shards (twice as wide for 16-bit gradients), bitmaps."""
    kept_apart = 1.0 if config.deterministic else 0.0
    parts = 1 if agreement.num_groups == 1 else 2  # within the group and between the groups
    return max(_SMALLEST_EARLY_CAP, int(step_bytes * (1.1 + parts * (2 / agreement.num_shards + kept_apart))))


def require_finite(duration: float) -> float:
    """Whatever waits has an end."""
    if not math.isfinite(duration):
        raise ValueError(f"a time limit is a finite number, not {duration}")
    return duration


class Link:
    """The open connection of this rank to all others. Closes itself when it is forgotten."""

    def __init__(
        self,
        engine: _native.Engine,
        agreement: Agreement,
        config: Config,
        *,
        step_bytes: int = 0,
        record: bool = False,
        pack_below_bytes_per_s: float = 0.0,
    ) -> None:
        """Gradients are packed where the network is slower than `pack_below_bytes_per_s`."""
        self.engine = engine
        self.pack_below_bytes_per_s = pack_below_bytes_per_s
        self.agreement = agreement
        self.config = config
        self.meeting: _native.HostMeeting | None = None
        self.host_meetings: tuple[_native.HostMeeting, _native.HostMeeting] | None = None
        self._leave: list[Callable[[], object]] = []
        self._finalizer = weakref.finalize(self, engine.close)
        own_host = agreement.ranks[agreement.rank].host_identity
        hosts_meet = agreement.ranks_per_host > 1
        settings = _native.EndpointSettings.make(
            rank=agreement.rank,
            num_ranks=agreement.num_ranks,
            job=agreement.job,
            epoch=agreement.epoch,
            job_key=agreement.job_key,
            protection=getattr(_native.Protection, config.protection),
            packets_per_key=config.packets_per_key,
            datagram_bytes=agreement.datagram_bytes,
            early_bytes_cap=config.early_bytes_cap or _early_cap(step_bytes, agreement, config),
            heartbeat_interval_s=config.heartbeat_ms / 1e3,
            silence_limit_s=config.silence_limit_ms / 1e3,
            rate_rule=getattr(_native.RateRule, config.rate_rule),
            num_groups=agreement.num_groups if not hosts_meet else agreement.num_ranks // agreement.ranks_per_host,
            hosts_meet=hosts_meet,
            pack_below_bytes_per_s=pack_below_bytes_per_s,
        )
        peers = [
            _native.Peer(rank.host, rank.port, rank.process, rank.host_identity == own_host) for rank in agreement.ranks
        ]
        engine.start(settings, peers, record)
        # Before anybody is told that this rank has joined: a peer's first datagram may open an operation here.
        stage_ms = (config.deadline_ms or config.exact_deadline_ms) / 2
        self.publish(
            from_operation=0,
            stage_ms=stage_ms,
            usual_stage_ms=stage_ms,  # nothing has been measured yet
            credit=config.credit,
        )

    @property
    def rank(self) -> int:
        return self.agreement.rank

    @property
    def num_ranks(self) -> int:
        return self.agreement.num_ranks

    def enter(self, meeting: _native.HostMeeting) -> None:
        """All ranks are on this host and can average in shared memory; the datagrams tell who is alive."""
        self.meeting = meeting
        self._leave.append(weakref.finalize(self, meeting.close))

    def enter_host(self, sums: _native.HostMeeting, spreads: _native.HostMeeting) -> None:
        """The ranks of every host can sum in shared memory, and hand round what came from the other hosts."""
        self.host_meetings = sums, spreads
        self._leave += [weakref.finalize(self, meeting.close) for meeting in (sums, spreads)]

    @property
    def divides_unevenly(self) -> bool:
        """Shards may be of different sizes. With two ranks no division is faster than another, what time decides is
        not deterministic, and groups and hosts have even shards."""
        config = self.config
        possible = 2 < self.num_ranks <= MAX_UNEVEN_RANKS and self.agreement.num_groups == 1
        possible = possible and self.host_meetings is None
        return config.uneven_shards and not config.deterministic and possible

    @property
    def may_switch_hadamard(self) -> bool:
        return self.config.hadamard_in_force == "auto" and self.num_ranks > 1

    @property
    def closed(self) -> bool:
        return self.engine.closed

    def wait_joined(self, timeout_s: float) -> None:
        """Returns when every peer has answered; otherwise says which did not, and why as far as can be known."""
        with self.errors_named():
            missing = self.engine.wait_joined(require_finite(timeout_s))
        if not missing:
            return
        # Who has said goodbye was heard: it gave up a moment earlier, waiting for the same ranks.
        left = self.peers_in(_native.PeerState.left)
        missing = [rank for rank in missing if rank not in left] or missing
        strangers = [
            peer.rank for peer in self.snapshot().peers if peer.rank in missing and peer.failed_authentications
        ]
        if strangers:
            raise KeyMismatch(
                "datagrams came, but none that this job's key opens",
                peers=strangers,
                what_to_try="give all ranks the same key_file and the same protection",
            )
        addresses = ", ".join(
            f"rank {rank} at {self.agreement.ranks[rank].host}:{self.agreement.ranks[rank].port}" for rank in missing
        )
        raise PeerUnreachable(
            f"no datagram came back from {addresses} within {timeout_s:g} s",
            peers=missing,
            what_to_try="let UDP through between the hosts (a fixed `port` helps), or choose another `interface`",
        )

    def snapshot(self) -> _native.Snapshot:
        self.require_open()
        with self.errors_named():
            return self.engine.snapshot()

    def gone_peers(self) -> set[int]:
        """Ranks that are dead or have left."""
        return self.peers_in(_native.PeerState.dead, _native.PeerState.left)

    def peers_in(self, *states: _native.PeerState) -> set[int]:
        self.require_open()
        with self.errors_named():
            now = self.engine.peer_states()
        return {rank for rank, state in enumerate(now) if state in states and rank != self.rank}

    def require_open(self) -> None:
        with self.errors_named():
            if reason := self.engine.failure():
                raise OperationError(f"the I/O thread has ended: {reason}", what_to_try="attach again")

    @contextlib.contextmanager
    def errors_named(self) -> Iterator[None]:
        """Around every use of the engine: another thread may close it at any moment, and so may its own failure."""
        try:
            yield
        except RuntimeError as error:
            if self.engine.closed:
                raise HandleClosed("this link has been closed", what_to_try="attach again") from error
            raise OperationError(f"the I/O thread has ended: {error}", what_to_try="attach again") from error

    def publish(
        self,
        *,
        from_operation: int,
        stage_ms: float,
        usual_stage_ms: float,
        credit: int,
        shard_weights: Sequence[int] = (),
        division: int = 0,
        encoded: bool = False,
    ) -> None:
        """The parameters of all operations from this one on; without weights, every rank's shard has the same size.

        `encoded`: callers hand over coefficients. Nothing is summed with what a rank sends that does otherwise.
        """
        with self.errors_named():
            self.engine.publish(
                from_operation=from_operation,
                t_b_s=require_finite(stage_ms / 1e3),
                t_c_s=require_finite(usual_stage_ms / 1e3),
                early_wait_ratio=self.config.early_wait_most_ratio,
                credit=credit,
                deterministic=self.config.deterministic,
                # Longer than anybody waits for an exact operation, so that what a late rank was sent is still there.
                duty_limit_s=2 * self.config.exact_deadline_ms / 1e3,
                shard_weights=shard_weights,
                division=division,
                needs_majority=self.divides_unevenly,
                repair_grace_s=self.config.repair_grace_ratio * usual_stage_ms / 1e3,
                zero_fill=self.config.estimate == "zero_fill",
                tells_by_element=self.config.loss_feedback,
                encoded=encoded,
            )

    # -- notes: exact messages outside operations -------------------------------------------------------------------

    def send_note(self, peer: int, channel: int, content: bytes, deadline_s: float) -> int:
        """Starts an exact message; `finish_note` waits for its end."""
        self.require_open()
        with self.errors_named():
            return self.engine.send_note(peer, channel, content, require_finite(deadline_s))

    def finish_note(self, peer: int, ticket: int, deadline_s: float) -> None:
        with self.errors_named():
            fate = self.engine.wait_note(ticket, require_finite(deadline_s) + 1.0)
        if fate == _native.NoteFate.delivered:
            return
        if fate is None:
            self.require_open()
        if fate == _native.NoteFate.peer_dead:
            raise PeerDead("a peer fell silent during an exact message", peers=[peer], what_to_try="restart that rank")
        raise DeadlineExceeded(
            "an exact message was not acknowledged", peers=[peer], deadline_ms=deadline_s * 1e3, what_to_try="more time"
        )

    def note_is_settled(self, ticket: int) -> bool:
        """For those who do not care how a note ended, only that its end need not be remembered."""
        with self.errors_named():
            return self.engine.wait_note(ticket, 0.0) is not None

    def receive_note(self, channel: int, deadline_s: float) -> tuple[int, bytes] | None:
        self.require_open()
        with self.errors_named():
            received = self.engine.receive_note(channel, require_finite(deadline_s))
        if received is None:
            self.require_open()  # closed meanwhile is not the same as nothing having come
        return received

    def discard_notes(self, channel: int) -> None:
        """Throws away what has arrived on a channel, so that it does not count against its sender any more."""
        self.require_open()
        with self.errors_named():
            self.engine.discard_notes(channel)

    def close(self) -> None:
        """Says goodbye to the peers and ends the threads. Harmless when repeated."""
        self._finalizer()
        for leave in self._leave:
            leave()
