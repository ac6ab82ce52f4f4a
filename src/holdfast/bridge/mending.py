"""What a rank in doubt has asked the others for, and what came of it.

Where little can be missing one rank is asked after the other, until one is sure of its state. A rank that was away lacks
everything: it asks many, each for a portion of the blocks. From one of them alone they would take several steps, and hold up
that one's gradients in each.

A round is what is asked for between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

from holdfast.bridge.replica_notes import Content, Portion, Refusal, Verdict
from holdfast.bridge.state_blocks import StateBlocks
from holdfast.control.replica_vote import referee_of

_EVERYTHING = Portion()
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
        self._judged: set[int] = set()  # this rank's state, in this round
        self._more_is_missing = False  # than one of these has sent
        self._asks_many = False
        self._budget = _FIRST_BUDGET
        self._arrived: dict[int, dict[int, bytes]] = {}  # blocks to install, by step
        self._num_arrived: Counter[int] = Counter()  # by step; the same may come twice
        self._num_promised: Counter[int] = Counter()

    def begin(self, *, much_is_missing: bool) -> None:
        """A doubt. Much is missing where this rank was away."""
        self._asks_many = much_is_missing
        self._judged.clear()
        self._more_is_missing = False

    def was_disturbed(self) -> None:
        """What was sent to mend the last loss may have cost another one."""
        self._budget = max(_LEAST_BUDGET, self._budget / 2)

    # -- asking -----------------------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        if self._more_is_missing:
            self._asks_many = True
        elif self._judged and 2 * len(self._judged | self.refused.keys()) > len(self._asked):
            self._asks_many = False  # all that they had is on its way or here; one rank's word is to end the doubt
        self._more_is_missing = False
        self.refused.clear()
        self._judged.clear()
        self._asked.clear()

    def next_to_ask(self, step: int, unavailable: Set[int], blocks: StateBlocks) -> Mapping[int, Portion]:
        """Who is asked for what, of those that have not refused; another time in the round only in place of those."""
        if not self._asks_many or self._asked:
            # One after the other: also, in the end, if all that were asked for a portion have refused.
            asked = referee_of(step, self._num_ranks, unavailable | self.refused.keys())
            waits = self._asks_many and not self._asked <= self.refused.keys()
            found = {} if asked is None or waits else {asked: Portion()}
        else:
            others = [rank for rank in range(self._num_ranks) if rank not in unavailable]
            blocks_in_time = self.budget_bytes(blocks) * blocks.num_blocks // max(1, blocks.num_bytes)
            of = max(1, min(len(others), blocks_in_time))
            # Others each time, and for other portions: who cannot send one cannot do so the next time, either.
            found = {others[(step + place) % len(others)]: Portion(place, of) for place in range(of) if others}
        self._asked |= found.keys()
        return found

    def was_asked(self, rank: int) -> bool:
        return rank in self._asked

    def budget_bytes(self, blocks: StateBlocks, portion: Portion = _EVERYTHING) -> int:
        """How much of a portion of the state this rank can take before its next step."""
        if blocks.num_bytes <= SMALL_STATE_BYTES:
            return blocks.num_bytes
        return int(self._budget * blocks.num_bytes) // portion.of

    # -- what comes -------------------------------------------------------------------------------------------------------

    def keep(self, message: Content) -> None:
        self._arrived.setdefault(message.step, {})[message.block] = message.content
        self._num_arrived[message.step] += 1

    def expect(self, sender: int, verdict: Verdict) -> None:
        self._num_promised[verdict.step] += verdict.sent
        self._judged.add(sender)
        self._more_is_missing = self._more_is_missing or verdict.unequal > verdict.sent

    def forget_arrived(self) -> None:
        for by_step in (self._arrived, self._num_arrived, self._num_promised):
            by_step.clear()

    def take_arrived(self, step: int) -> Mapping[int, bytes]:
        """The blocks of the state after this step; what belongs to earlier ones is dropped."""
        found = self._arrived.get(step, {})
        promised, arrived = self._num_promised[step], self._num_arrived[step]
        if promised > arrived:
            self._budget = max(_LEAST_BUDGET, self._budget / 2)
        elif promised:
            self._budget = min(MOST_BUDGET, 1.5 * self._budget)
        for by_step in (self._arrived, self._num_arrived, self._num_promised):
            for past in [known for known in by_step if known <= step]:
                del by_step[past]
        return found
