"""How a rank that was away finds the others again.

It asks where they are, and goes on from there in the order of operations. Its own loop has fewer steps behind it then: it
passes those that the others have made already, where that is quick (`control.catching_up`), and asks on, since they go on
meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from holdfast import _native
from holdfast.bridge.replica_notes import Standing, Where
from holdfast.bridge.replica_post import ReplicaPost
from holdfast.control.catching_up import MOST_STEPS_MEANWHILE, OwnWork, makes_up_for
from holdfast.link.link import Link
from holdfast.reduce.reducer import Reducer

logger = logging.getLogger(__name__)

_ANSWERS_LIMIT_S = 0.05
_JUST_HEARD_S = 0.05


class WayBack:
    def __init__(self, link: Link, reducer: Reducer, lock: threading.Condition, post: ReplicaPost) -> None:
        """`lock` is that under which answers are taken."""
        self._link = link
        self._reducer = reducer
        self._lock = lock
        self._post = post
        self._answers: dict[int, Standing] = {}
        self._own_work = OwnWork()
        self._steps_to_pass = 0
        self._steps_meanwhile: int | None = None  # that the others made since it began to pass; none: it did not begin
        self.skipped_operations = 0
        self.passed_steps = 0

    @property
    def passing(self) -> bool:
        """The others have made the step that this rank's loop is at."""
        return self._steps_to_pass > 0

    def work_done(self) -> None:
        """This rank's gradients are on their way."""
        self._own_work.done(time.monotonic())

    def step_ended(self, *, usual: bool) -> None:
        self._own_work.step_ended(time.monotonic(), usual=usual)
        if usual:
            self._steps_meanwhile = None

    def step_passed(self) -> None:
        self.step_ended(usual=False)
        self._steps_to_pass -= 1
        self.passed_steps += 1

    def take(self, sender: int, answer: Standing) -> None:
        self._answers[sender] = answer
        self._lock.notify_all()

    def catch_up(self, made: int) -> int | None:
        """Goes on from where the others are, if that is further than the steps that this rank has made: after which?

        While it passes steps nobody is waited for; what comes of a question is seen after the next one.
        """
        peers = [peer for peer in self._link.snapshot().peers if peer.state == _native.PeerState.alive]
        # Who was not heard just now will not answer: it is the network that is away, and waiting makes it worse.
        near = {peer.rank for peer in peers if peer.silence_s < _JUST_HEARD_S}
        with self._lock:
            furthest = where_most_are(list(self._answers.values()), len(peers)) if self.passing else None
            self._answers.clear()
            # Not right before the last question: its answers would be taken for those to that one.
            for peer in near if self._steps_to_pass != 1 else ():
                self._post.send(peer, Where().encode())
            if not self.passing:
                self._lock.wait_for(lambda: self._answers.keys() >= near, _ANSWERS_LIMIT_S)
                furthest = where_most_are(list(self._answers.values()), len(peers))
        if furthest is None or furthest.step <= made:
            return None
        self._go_on_from(furthest, furthest.step - made)
        return furthest.step

    def _go_on_from(self, furthest: Standing, missed_steps: int) -> None:
        before = self._reducer.position.next_operation
        skipped = self._reducer.resume(furthest.next_operation, furthest.num_calls) - before
        self.skipped_operations += skipped
        if self._steps_meanwhile is None:
            # Ranks that share memory with others of their host would hold those up, each from where it is.
            passes = self._link.host_meetings is None and makes_up_for(missed_steps, self._own_work.ratio)
            self._steps_meanwhile = 0 if passes else None
        else:
            self._steps_meanwhile += missed_steps
            passes = self._steps_meanwhile <= MOST_STEPS_MEANWHILE
        self._steps_to_pass = self._steps_to_pass + missed_steps if passes else 0
        logger.log(
            logging.DEBUG if self._steps_meanwhile else logging.WARNING,
            "[rank %d] the others have made %d steps (%d operations) without it: going on with them after step %d%s",
            self._link.rank,
            missed_steps,
            skipped,
            furthest.step,
            ", passing the missed ones" if passes else "; its own loop stays behind",
        )


def where_most_are(answers: Sequence[Standing], num_others: int) -> Standing | None:
    """The furthest that more than half of the others have come to. No single rank leads another astray, also where it is
    the only one that has answered in time."""
    furthest_first = sorted(answers, key=lambda standing: standing.step, reverse=True)
    needed = num_others // 2 + 1
    return furthest_first[needed - 1] if len(furthest_first) >= needed else None
