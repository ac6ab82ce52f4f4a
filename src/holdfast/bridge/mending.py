"""What a rank in doubt has asked the others for, and what came of it.

Where little can be missing one rank is asked after the other, until one is sure of its state. A rank that was away lacks
everything: it asks all others, each for a portion of the blocks. From one of them alone they would take several steps, and
hold up that one's gradients in each.

A round is what is asked for between two steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from holdfast.bridge.replica_notes import Content, Portion, Refusal, Verdict
from holdfast.control.replica_vote import referee_of

KEPT_STEPS = 4
# Of the state, per step: what is sent to a rank takes the way of its gradients.
_FIRST_BUDGET, _LEAST_BUDGET, MOST_BUDGET = 1 / 8, 1 / 64, 1 / 4
SMALL_STATE_BYTES = 1 << 20


class Mending:
    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self.refused: dict[int, Refusal] = {}
        """What those said that were asked in this round and cannot send anything."""
        self._asked: set[int] = set()
        self._asks_all = False
        self._more_is_missing: bool | None = None  # than was sent in this round; none: nobody has said
        self._budget = _FIRST_BUDGET
        self._arrived: dict[int, dict[int, bytes]] = {}  # blocks to install, by step
        self._promised: dict[int, int] = {}  # how many of them are on their way, by step

    def much_is_missing(self) -> None:
        """This rank was away."""
        self._asks_all, self._more_is_missing = True, None

    def was_disturbed(self) -> None:
        """What was sent to mend the last loss may have cost another one."""
        self._budget = max(_LEAST_BUDGET, self._budget / 2)

    # -- asking -----------------------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        self.refused.clear()
        self._asked.clear()
        if self._more_is_missing is not None:
            self._asks_all, self._more_is_missing = self._more_is_missing, None

    def next_to_ask(self, step: int, unavailable: Set[int]) -> Mapping[int, Portion]:
        """Who is asked for what, of those that have not refused; another time in the round only in place of those."""
        if not self._asks_all:
            asked = referee_of(step, self._num_ranks, unavailable | self.refused.keys())
            found = {} if asked is None else {asked: Portion()}
        elif self._asked:
            found = {}
        else:
            others = [rank for rank in range(self._num_ranks) if rank not in unavailable]
            # Another one each time: who cannot send its portion cannot do so the next time, either.
            found = {rank: Portion((place + step) % len(others), len(others)) for place, rank in enumerate(others)}
        self._asked |= found.keys()
        return found

    def was_asked(self, rank: int) -> bool:
        return rank in self._asked

    def budget_bytes(self, state_bytes: int) -> int:
        """How much of the state this rank can take before its next step."""
        return state_bytes if state_bytes <= SMALL_STATE_BYTES else int(self._budget * state_bytes)

    # -- what comes -------------------------------------------------------------------------------------------------------

    def keep(self, message: Content) -> None:
        self._arrived.setdefault(message.step, {})[message.block] = message.content

    def expect(self, verdict: Verdict) -> None:
        self._promised[verdict.step] = self._promised.get(verdict.step, 0) + verdict.sent
        self._more_is_missing = bool(self._more_is_missing) or verdict.unequal > verdict.sent

    def forget_arrived(self) -> None:
        self._arrived.clear()

    def take_arrived(self, step: int) -> Mapping[int, bytes]:
        """The blocks of the state after this step; what belongs to earlier ones is dropped."""
        arrived = self._arrived.pop(step, {})
        promised = self._promised.pop(step, 0)
        self._arrived = {later: content for later, content in self._arrived.items() if later > step}
        self._promised = {later: count for later, count in self._promised.items() if later > step}
        if promised > len(arrived):
            self._budget = max(_LEAST_BUDGET, self._budget / 2)
        elif promised:
            self._budget = min(MOST_BUDGET, 1.5 * self._budget)
        return arrived
