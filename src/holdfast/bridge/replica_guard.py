"""Replicas stay equal: differences are found by fingerprints, and mended while the next forward and backward run.

After every step each rank sends fingerprints of one slice of its state to the step's referee, who compares them. A rank
that missed some of a result is *dirty*: it sends fingerprints of everything, and gets the blocks that differ. They
belong to the state after that step, so they are installed before the next one, when the parameters are still what they
were; what comes later is dropped and asked for again. Nobody waits for any of it.

A rank that was away while the others went on asks where they are, and goes on from there: it passes the steps of its loop
that they have made already, where that is quick enough, and has the whole state sent.

Messages are read by a thread of its own. Parameters and optimizer state are at rest between two steps, and the lock
tells the thread when they are not.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from holdfast import _native
from holdfast.bridge import replica_notes
from holdfast.bridge.mending import KEPT_STEPS, MOST_BUDGET, SMALL_STATE_BYTES, Mending
from holdfast.bridge.replica_figures import ReplicaFigures
from holdfast.bridge.replica_notes import Content, Corruption, Refusal, Report, Standing, Verdict, Where
from holdfast.bridge.replica_post import CHANNEL, ReplicaPost
from holdfast.bridge.state_blocks import StateBlocks
from holdfast.bridge.way_back import WayBack
from holdfast.control.replica_vote import NUM_SLICES, odd_ranks, referee_of, slice_of
from holdfast.errors import HandleClosed
from holdfast.link.link import Link
from holdfast.reduce.reducer import Reducer

logger = logging.getLogger(__name__)

_LOOK_S = 0.1
_CLOSE_LIMIT_S = 2.0
_KEPT_CORRUPTIONS = 100


class ReplicaGuard:
    def __init__(self, link: Link, reducer: Reducer, blocks_now: Callable[[], StateBlocks]) -> None:
        self._link = link
        self._reducer = reducer
        self._blocks_now = weakref.WeakMethod(blocks_now)
        self._lock = threading.Condition()
        self._post = ReplicaPost(link)
        self._figures = ReplicaFigures()
        self._standing = Standing(0, 0, 0)
        self._at_rest = False
        self._report_due = False  # the state after this step was not told to anybody yet
        self._blocks: StateBlocks | None = None
        self._dirty_since: int | None = None
        self._withdrew = False  # while dirty: it has left out an update, and nothing to offer that others could want
        self._unsure_steps = 0  # after which all others refused, too
        self._sent_since: set[int] = set()  # blocks, since the doubt began; they have been updated alike since
        self._mending = Mending(link.num_ranks)
        self._state_before: dict[int, Report] = {}  # the own fingerprints of the last steps
        self._reports: dict[int, dict[int, Report]] = {}  # by step, by rank: not settled yet
        self._warned_of_layout = False
        self._way_back = WayBack(link, reducer, self._lock, self._post)
        self._closing = threading.Event()
        listener = (weakref.ref(self), link.engine, self._closing)
        thread = threading.Thread(target=_listen, args=listener, name="holdfast-replicas", daemon=True)
        # Also at exit: a thread that comes back from native code into an interpreter that is gone ends the process.
        self._ending = weakref.finalize(self, _end, self._closing, thread)
        thread.start()

    @property
    def figures(self) -> ReplicaFigures:
        return replace(
            self._figures,
            bytes_sent=self._post.bytes_sent,
            skipped_operations=self._way_back.skipped_operations,
            passed_steps=self._way_back.passed_steps,
        )

    @property
    def step(self) -> int:
        return self._standing.step

    @property
    def dirty(self) -> bool:
        return self._dirty_since is not None

    @property
    def passing(self) -> bool:
        """The others have made the step that this rank's loop is at."""
        return self._way_back.passing

    def explain(self) -> str:
        figures = self.figures
        said = (
            f"compared after every step, all of it once in {NUM_SLICES} steps; {figures.steps} steps, "
            f"{figures.dirty_steps} of them in doubt here, {figures.mended_bytes:,} bytes mended"
        )
        if figures.passed_steps:
            said += f"; {figures.passed_steps} steps passed that the others had made without it"
        return said + (f"; {len(figures.corruptions)} differences that no loss explains" if figures.corruptions else "")

    def close(self) -> None:
        with self._lock:
            self._at_rest = False
        self._ending()

    # -- around the optimizer's step, on the thread that trains -----------------------------------------------------------

    def while_waiting(self) -> None:
        """The gradients are on their way, and nothing else is to be done: the time to compare the last step's state."""
        self._way_back.work_done()
        self._report_if_due()

    def before_step(self) -> None:
        """Parameters and optimizer state are still those after the last step: what was sent of it is installed."""
        self._report_if_due()  # unless it was done; there need not have been anything to wait for
        with self._lock:
            self._install()
            self._at_rest = False

    def after_step(self, *, missed: bool, withdrawn: bool) -> None:
        """`missed`: this rank may have applied something else than the others. `withdrawn`: it has applied nothing."""
        self._way_back.step_ended(usual=not withdrawn)
        made = self._standing.step + 1
        self._stand_at((self._way_back.catch_up(made) if withdrawn else None) or made)
        with self._lock:
            if missed or withdrawn:
                if self.dirty:
                    self._mending.was_disturbed()
                self._doubt(was_away=withdrawn)
            self._withdrew = self.dirty and (self._withdrew or withdrawn)
            self._unsure_steps = self._unsure_steps if self.dirty else 0
            self._figures = replace(
                self._figures,
                steps=self._figures.steps + 1,
                dirty_steps=self._figures.dirty_steps + self.dirty,
                withdrawn_steps=self._figures.withdrawn_steps + withdrawn,
            )
        self._rest()

    def step_passed(self) -> None:
        """Instead of the two above: the optimizer has made a step without gradients, while this rank is `passing`."""
        self._way_back.step_passed()
        further = self._way_back.catch_up(self._standing.step)  # they have gone on meanwhile
        with self._lock:
            if further is not None:
                self._stand_at(further)
            self._doubt(was_away=True)
        self._rest()

    def _rest(self) -> None:
        """Until the next step the state is what it is, and can be compared."""
        with self._lock:
            if (blocks_now := self._blocks_now()) is None:
                return
            self._blocks = blocks_now()
            # While it passes steps it has the number of a state that it has not.
            self._at_rest = self._report_due = not self.passing
            if self._report_due and self.dirty:  # what is to be mended before the next step is asked for at once
                self._report(self._blocks)
            else:
                self._settle_waiting()

    def _stand_at(self, step: int) -> None:
        position = self._reducer.position
        with self._lock:
            self._standing = Standing(step, position.next_operation, position.num_calls)

    def _report_if_due(self) -> None:
        with self._lock:
            if self._report_due and self._blocks is not None:
                self._report(self._blocks)
        self._post.forget_settled()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While somebody else makes the replicas equal; after it they are."""
        with self._lock:
            at_rest, self._at_rest = self._at_rest, False
        try:
            yield
            with self._lock:
                self._mending.forget_arrived()
                self._dirty_since = None
                if self.passing:  # they are the others' after an earlier step than it will go on from
                    self._doubt()
                self._report_due = False  # what it would tell of is not there any more
                self._reports.clear()
        finally:
            with self._lock:
                self._at_rest = at_rest

    def _doubt(self, *, was_away: bool = False) -> None:
        if was_away or not self.dirty:
            self._mending.begin(much_is_missing=was_away)
        self._dirty_since = self._standing.step
        self._sent_since.clear()

    def _report(self, blocks: StateBlocks) -> None:
        self._report_due = False
        step = self._standing.step
        compared = range(blocks.num_blocks) if self.dirty else slice_of(step, blocks.num_blocks)
        report = Report(
            self._standing,
            blocks.layout,
            self.dirty,
            next(block for block in itertools.count() if block not in self._sent_since),
            self._mending.budget_bytes(blocks),
            tuple(blocks.fingerprints(compared)),
        )
        self._state_before[step] = report
        for old in [kept for kept in self._state_before if kept <= step - KEPT_STEPS]:
            del self._state_before[old]
        if self.dirty:
            self._mending.begin_round()
            self._ask(report, blocks)
        else:
            referee = referee_of(step, self._link.num_ranks, self._link.gone_peers())
            if referee is not None and referee != self._link.rank:
                self._post.send(referee, report.encode())
        self._settle_waiting()

    def _ask(self, report: Report, blocks: StateBlocks) -> None:
        """Where nobody is sure, most may have missed the same: those that are equal to more than half are right."""
        unavailable = self._link.gone_peers() | {self._link.rank}
        for rank, portion in self._mending.next_to_ask(report.step, unavailable, blocks).items():
            asking = replace(report, portion=portion, budget_bytes=self._mending.budget_bytes(blocks, portion))
            self._post.send(rank, asking.encode())
        refused = self._mending.refused
        nobody_is_left = len(unavailable | refused.keys()) == self._link.num_ranks
        if nobody_is_left and refused and not any(refusal.sure for refusal in refused.values()):
            self._settle_among_unsure(refused)

    def _settle_among_unsure(self, refused: Mapping[int, Refusal]) -> None:
        equal = 1 + sum(refusal.equal for refusal in refused.values())
        if 2 * equal > 1 + len(refused):
            self._dirty_since = None
            return
        # Others may be so many; if nobody is after another step, the lowest is right that left out no update.
        self._unsure_steps += 1
        withdrew = {rank: refusal.withdrew for rank, refusal in refused.items()} | {self._link.rank: self._withdrew}
        eligible = [rank for rank in withdrew if not withdrew[rank]] or list(withdrew)
        if self._unsure_steps > 1 and self._link.rank == min(eligible):
            self._dirty_since = None

    def _install(self) -> None:
        arrived = self._mending.take_arrived(self._standing.step)
        if self._blocks is None or not arrived:
            return
        blocks_now = self._blocks_now()
        if blocks_now is None or not self._blocks.is_still(blocks_now()):
            self._doubt()  # somebody loaded or replaced something since: what was sent belongs to what was there before
            return
        drift = self._figures.worst_drift
        for block in sorted(arrived):
            drift = max(drift, self._blocks.write(block, arrived[block]))
        self._sent_since |= arrived.keys()
        if self.dirty and len(self._sent_since) == self._blocks.num_blocks:
            self._dirty_since = None
        self._figures = replace(
            self._figures,
            mended_blocks=self._figures.mended_blocks + len(arrived),
            mended_bytes=self._figures.mended_bytes + sum(map(len, arrived.values())),
            worst_drift=drift,
        )

    # -- what others say, on the thread that listens ----------------------------------------------------------------------

    def take(self, sender: int, note: bytes) -> None:
        message = replica_notes.decode(note)
        with self._lock:
            if self._closing.is_set():
                return
            match message:
                case Where():
                    self._post.send(sender, self._standing.encode())
                case Standing():
                    self._way_back.take(sender, message)
                case Report():
                    self._take_report(sender, message)
                case Content():
                    self._take_content(sender, message)
                case Verdict():
                    self._take_verdict(sender, message)
                case Refusal():
                    self._take_refusal(sender, message)
                case Corruption():
                    if sender == referee_of(message.step, self._link.num_ranks, self._link.gone_peers()):
                        self._take_corruption(message)

    def _take_report(self, sender: int, report: Report) -> None:
        if report.step > self._standing.step + 2 * NUM_SLICES or len(self._reports) > 4 * NUM_SLICES:
            return  # this rank is far behind, and no judge of it
        if self._blocks is not None and len(report.fingerprints) > self._blocks.num_blocks:
            return
        if self.passing and report.dirty:  # who asks goes on to the next, and to what most say if nobody is sure
            self._post.send(sender, Refusal(report.step, sure=False, withdrew=True, equal=False).encode())
            return
        self._reports.setdefault(report.step, {})[sender] = report
        if report.step <= self._standing.step and self._at_rest:
            self._settle(report.step, final=False)

    def _take_content(self, sender: int, message: Content) -> None:
        if not self._mending.was_asked(sender):
            return
        standing, blocks = self._standing, self._blocks
        too_late = message.step < standing.step or (message.step == standing.step and not self._at_rest)
        if (
            blocks is None
            or message.block >= blocks.num_blocks
            or len(message.content) != blocks.size_of(message.block)
        ):
            return
        if too_late:
            self._figures = replace(self._figures, late_blocks=self._figures.late_blocks + 1)
        elif self.dirty and message.step <= standing.step + KEPT_STEPS:
            self._mending.keep(message)

    def _take_verdict(self, sender: int, verdict: Verdict) -> None:
        if not self._mending.was_asked(sender) or self._dirty_since is None or verdict.step < self._dirty_since:
            return
        if self._blocks is not None and verdict.compared == self._blocks.num_blocks and not verdict.unequal:
            self._dirty_since = None
        elif verdict.step <= self._standing.step + KEPT_STEPS:
            self._mending.expect(sender, verdict)

    def _take_refusal(self, sender: int, refusal: Refusal) -> None:
        own = self._state_before.get(refusal.step)
        if own is None or self._blocks is None or refusal.step != self._standing.step or not self.dirty:
            return
        if self._mending.was_asked(sender) and sender not in self._mending.refused:
            self._mending.refused[sender] = refusal
            self._ask(own, self._blocks)

    def _take_corruption(self, found: Corruption) -> None:
        near = abs(found.step - self._standing.step) <= 2 * NUM_SLICES
        if self._blocks is None or found.rank >= self._link.num_ranks or not near:
            return
        names = self._blocks.names_in(block for block in found.blocks if block < self._blocks.num_blocks)
        text = f"rank {found.rank} after step {found.step}: {', '.join(names)}"
        logger.error(
            "[rank %d] no loss explains why the state of %s differs from the others'; it is fetched again. "
            "Memory or a processor may be faulty, or the training is not the same on all ranks",
            self._link.rank,
            text,
        )
        self._figures = replace(self._figures, corruptions=(*self._figures.corruptions, text)[-_KEPT_CORRUPTIONS:])
        if found.rank == self._link.rank:
            self._doubt()

    # -- as a referee -------------------------------------------------------------------------------------------------------

    def _settle_waiting(self) -> None:
        step = self._standing.step
        for waiting in sorted(self._reports):
            if waiting <= step:
                self._settle(waiting, final=waiting < step)

    def _settle(self, step: int, *, final: bool) -> None:
        """Answers those that ask, and compares what the others reported after a step. `final`: nobody is waited for."""
        blocks = self._blocks
        if blocks is None:
            return
        reports = self._reports[step]
        for rank in [rank for rank, report in reports.items() if report.dirty]:
            self._serve(rank, reports.pop(rank), blocks)
        own = self._state_before.get(step)
        expected = set(range(self._link.num_ranks)) - {self._link.rank} - self._link.gone_peers()
        awaits_own = self._report_due and step == self._standing.step
        if not final and (awaits_own or (own is not None and not reports.keys() >= expected)):
            return
        del self._reports[step]
        if own is not None and not own.dirty:
            reports[self._link.rank] = own
            self._vote(step, reports, blocks)

    def _vote(self, step: int, reports: dict[int, Report], blocks: StateBlocks) -> None:
        compared = slice_of(step, blocks.num_blocks)
        voters = {
            rank: report.fingerprints
            for rank, report in reports.items()
            if report.layout == blocks.layout and len(report.fingerprints) == len(compared)
        }
        if len(voters) < len(reports):
            self._warn_of_layout(sorted(reports.keys() - voters.keys()))
        if 2 * len(voters) <= self._link.num_ranks - len(self._link.gone_peers()):
            return
        for rank, places in odd_ranks(voters).items():
            found = Corruption(step, rank, tuple(compared[place] for place in places))
            for peer in range(self._link.num_ranks):
                if peer != self._link.rank:
                    self._post.send(peer, found.encode())
            self._take_corruption(found)

    def _serve(self, rank: int, report: Report, blocks: StateBlocks) -> None:
        """Sends blocks that differ, or, if this rank is a step further, the next ones whatever they are."""
        if report.layout != blocks.layout:
            self._warn_of_layout([rank])
            return
        step = self._standing.step
        if self.dirty or not self._at_rest or not blocks.is_untouched():
            own_report = self._state_before.get(report.step)
            equal = own_report is not None and own_report.fingerprints == report.fingerprints
            self._post.send(rank, Refusal(report.step, not self.dirty, self._withdrew, equal).encode())
            return
        comparable = report.step == step and len(report.fingerprints) == blocks.num_blocks
        asked_for = report.portion.blocks(blocks.num_blocks)
        if comparable:
            own = zip(asked_for, blocks.fingerprints(asked_for), strict=True)
            wanted = [block for block, value in own if value != report.fingerprints[block]]
        else:
            wanted = [block for block in asked_for if block >= report.first_unsure]
        most = blocks.num_bytes if blocks.num_bytes <= SMALL_STATE_BYTES else int(MOST_BUDGET * blocks.num_bytes)
        sent = _within(min(report.budget_bytes, most), wanted, blocks)
        self._post.send(rank, Verdict(step, len(asked_for) if comparable else 0, len(wanted), len(sent)).encode())
        for block in sent:
            self._post.send(rank, Content(step, block, blocks.read(block)).encode())

    def _warn_of_layout(self, ranks: Sequence[int]) -> None:
        if self._warned_of_layout:
            return
        self._warned_of_layout = True
        logger.warning(
            "[rank %d] the state of ranks %s has other tensors than this rank's (an optimizer that is sharded or was not "
            "stepped everywhere?): replicas that differ in it are not compared",
            self._link.rank,
            ranks,
        )


def _within(budget_bytes: int, wanted: Sequence[int], blocks: StateBlocks) -> Sequence[int]:
    """As many of the first ones as fit, and one at least."""
    total = 0
    for count, block in enumerate(wanted):
        total += blocks.size_of(block)
        if total > budget_bytes and count > 0:
            return wanted[:count]
    return wanted


def _listen(reference: weakref.ref[ReplicaGuard], engine: _native.Engine, closing: threading.Event) -> None:
    """Keeps the engine while it waits, not the guard nor the link: whoever forgets those closes the engine."""
    while not closing.is_set():
        try:
            received = engine.receive_note(CHANNEL, _LOOK_S)
            ended = received is None and bool(engine.failure())
        except RuntimeError:  # closed
            return
        if ended:
            return
        if received is not None and (guard := reference()) is not None:
            try:
                guard.take(*received)
            except HandleClosed:
                return
            except Exception:
                logger.exception("a note about replicas could not be dealt with")
            del guard


def _end(closing: threading.Event, thread: threading.Thread) -> None:
    closing.set()
    if threading.current_thread() is not thread:  # the last to let go of the guard may be its own thread
        thread.join(_CLOSE_LIMIT_S)
