"""I: how many senders a receiver lets send to it at once (OptiReduce, section 3.2.2; its steps are not published).

In transpose everybody sends to everybody, so a shallow port in front of a receiver overflows by our own doing. Fewer
senders at once cure that, and cost rounds. But loss has other causes, which fewer senders do not cure: random loss is
there at any credit, bursts come and go. What tells them apart: **with one sender at a time no loss is of our own
making**, and incast returns as soon as the senders do. So:

- Loss beyond the background is a debt, and operations without any pay it back. Above a limit the credit is halved, and
  a test begins: is less than half of it lost now? If not, the credit is halved again, down to 1.
- If as much is lost even at 1, that is the background, and the credit goes back to where it fell from. It goes back at
  once where fewer lose more: senders keep to their share of their card, and a share of one is all of it.
- If less is lost, the credit climbs back by one with every good operation. If loss returns on the way, it was incast:
  the credit stays below that level. If not, it was a burst.
- Every alarm that was none doubles the debt it takes to raise the next one; the first takes as much as three bad
  operations.
- The level above the credit is tried again every so often; each failure doubles the time to the next trial, since a
  trial that fails costs late operations.

Evidence is counted in packets as well as in operations: one lost of seven packets is 14 %, and means nothing.
"""

from __future__ import annotations

from collections import deque

LOSS_HIGH = 0.02
"""Less is not worth a test: with one sender at a time an operation takes a fifth longer, and a port that overflows by
our own doing, with every sender at its share of the card, loses a fifth."""
LOSS_LOW = 0.0001
BACKGROUND_NOISE_RATIO = 2.0
"""An operation that loses up to twice the background says nothing about incast."""
DEBT_UNIT = 0.1
"""What one operation adds at most, and the first limit on trial: there the first operation of which a fifth is lost
ends it, and the first dozen that lose three percent each."""
DEBT_UNIT_PACKETS = 4
"""The unit is at least this many packets."""
PAID_BACK = 2
"""Units that an operation without loss takes off: losses in fewer than two of three operations never add up."""
SUSPICION = 3
"""Units before a test begins, at least: neighbours' traffic may take a fifth of an operation's packets without our
doing, but hardly of three in a row, and the test costs a dozen operations a fifth of their time."""
MOST_ALARM_UNITS = 8
BOUND_HIT_DEBT = 0.02
"""An operation that lost more than usual and ran into t_B is in debt as if it had lost at least this."""
TEST_OPERATIONS = 12
TEST_PACKETS = 2000
TEST_LOST_PACKETS = 20
"""1 % of 2,000. 20 lost are 20 give or take 5: enough to tell all from half; more loss needs fewer packets."""
ACCEPT_OPERATIONS = 10
ACCEPT_PACKETS = 1000
"""After this much without alarm a level on trial is believed."""
FIRST_PAUSE = 100
"""Operations before the level above the ceiling is tried again."""
MOST_PAUSE = 1600


class _Evidence:
    """What the latest operations at one level lost: as few as make a test."""

    def __init__(self) -> None:
        self._operations: deque[tuple[float, int]] = deque()
        self.num_packets = 0

    def add(self, loss: float, num_packets: int) -> None:
        self._operations.append((loss, num_packets))
        self.num_packets += num_packets
        while len(self._operations) > TEST_OPERATIONS and self.num_packets - self._operations[0][1] >= TEST_PACKETS:
            self.num_packets -= self._operations.popleft()[1]

    def is_enough(self, num_operations: int, num_packets: int) -> bool:
        return len(self._operations) >= num_operations and self.num_packets >= num_packets

    def is_test(self) -> bool:
        has_lost_enough = self.loss * self.num_packets >= TEST_LOST_PACKETS
        return self.is_enough(TEST_OPERATIONS, 0 if has_lost_enough else TEST_PACKETS)

    @property
    def loss(self) -> float:
        return sum(loss * packets for loss, packets in self._operations) / max(1, self.num_packets)


class Incast:
    """The credit that one receiver hands out."""

    def __init__(self, num_ranks: int) -> None:
        self._top = max(1, num_ranks - 1)
        self.credit = self._top
        self._ceiling = self._top
        """The highest level not known to lose."""
        self._seen = _Evidence()
        self._indebted = _Evidence()
        """Since the debt was last paid back."""
        self._debt_units = 0.0
        self._alarm_units = 1
        self._tested_background = 0.0
        self._mean_loss = 0.0
        self._testing = False
        self._on_trial = False
        self._fell_from = 0
        """The level that raised the alarm which is being looked into; 0: none."""
        self._loss_before = 0.0
        self._pause = FIRST_PAUSE
        self._pause_left = 0
        self._reason = "nothing is lost that fewer would save"

    @property
    def background_loss(self) -> float:
        """What the path loses whatever the credit: as tested, or less if less has been lost since."""
        return min(self._tested_background, self._mean_loss)

    def observe(self, loss_ratio: float, num_packets: int, *, hit_bound: bool) -> int:
        """One operation: what the network dropped, of how many packets, and whether t_B, or the limit, was hit.

        Without loss that says nothing about incast: somebody was late. Returns the credit from the next operation on.
        """
        if self._top == 1 or num_packets <= 0:
            return self.credit
        self._seen.add(loss_ratio, num_packets)
        self._mean_loss += (loss_ratio - self._mean_loss) / FIRST_PAUSE
        self._pause_left = max(0, self._pause_left - 1)
        self._charge(loss_ratio, num_packets, hit_bound)
        self._indebted = self._indebted if self._debt_units else _Evidence()
        self._indebted.add(loss_ratio, num_packets)
        is_alarm = self._debt_units >= self._alarm_units
        if self._testing:
            if self._loses_more():
                reason = f"{self._seen.loss:.1%} lost with {self.credit}, so fewer would lose more"
                self._end_failed_test(self._loss_before, reason)
            elif is_alarm and self.credit > 1:
                self._halve()
            elif self._seen.is_test():
                self._end_test()
        elif is_alarm and self._on_trial and self.credit > 1:
            self._back_from_trial()
        elif self._debt_units >= max(SUSPICION, self._alarm_units):
            self._begin_test()
        elif loss_ratio <= BACKGROUND_NOISE_RATIO * self.background_loss + LOSS_LOW:
            self._grow()
        return self.credit

    def explain(self) -> str:
        return f"credit {self.credit} of {self._top} senders at once: {self._reason}"

    def _charge(self, loss: float, num_packets: int, hit_bound: bool) -> None:
        excess = loss - BACKGROUND_NOISE_RATIO * self.background_loss - LOSS_HIGH
        if excess > 0:
            excess = max(excess, BOUND_HIT_DEBT) if hit_bound else excess
            self._debt_units += min(1.0, excess / max(DEBT_UNIT, DEBT_UNIT_PACKETS / num_packets))
        else:
            self._debt_units = max(0.0, self._debt_units - PAID_BACK)

    def _move_to(self, credit: int) -> None:
        self.credit = credit
        self._debt_units = 0.0
        self._seen = _Evidence()

    def _begin_test(self) -> None:
        self._fell_from, self._loss_before = self.credit, self._indebted.loss
        self._testing = True
        self._reason = f"{self._loss_before:.1%} lost with {self.credit}; seeing whether fewer help"
        self._halve()

    def _halve(self) -> None:
        self._move_to(max(1, self.credit // 2))

    def _end_test(self) -> None:
        lost = self._seen.loss
        did_help = lost <= self._loss_before / 2
        if did_help:
            self._testing = False
            self._on_trial = True
            self._tested_background = self._mean_loss = lost
            self._reason = f"{self._loss_before:.1%} lost with {self._fell_from}, {lost:.1%} with {self.credit}"
            self._move_to(self.credit)
        elif self.credit > 1:
            self._halve()
        else:
            self._end_failed_test(lost, f"{lost:.1%} is lost even with one, so fewer would save nothing")

    def _loses_more(self) -> bool:
        """A sender that has a port to itself sends at the full rate, and overruns it when it meets another after all."""
        lost_packets = self._seen.loss * self._seen.num_packets
        return (
            self.credit < self._fell_from
            and lost_packets >= TEST_LOST_PACKETS
            and self._seen.loss >= 2 * self._loss_before
        )

    def _end_failed_test(self, background: float, reason: str) -> None:
        self._testing = False
        self._tested_background = self._mean_loss = background
        self._reason = reason
        self._move_to(self._fell_from)
        self._end_false_alarm()

    def _end_false_alarm(self) -> None:
        self._fell_from = 0
        self._alarm_units = min(MOST_ALARM_UNITS, 2 * self._alarm_units)

    def _back_from_trial(self) -> None:
        self._on_trial = False
        self._fell_from = 0
        self._ceiling = self.credit - 1
        self._pause_left = self._pause
        self._pause = min(MOST_PAUSE, 2 * self._pause)
        lost = self._seen.loss
        self._reason = f"{lost:.1%} lost when {self.credit} were tried; not again for {self._pause_left} operations"
        self._move_to(self._ceiling)

    def _grow(self) -> None:
        if self.credit < self._ceiling:
            self._move_to(self.credit + 1)
        elif self._on_trial:
            if self._seen.is_enough(ACCEPT_OPERATIONS, ACCEPT_PACKETS):
                self._accept()
        elif not self._pause_left:
            self._try_one_more()

    def _accept(self) -> None:
        self._on_trial = False
        self._pause = FIRST_PAUSE
        self._reason = f"{self.credit} were tried and no more was lost"
        if self._fell_from:
            self._end_false_alarm()
        self._try_one_more()

    def _try_one_more(self) -> None:
        if self._ceiling < self._top:
            self._ceiling += 1
            self._on_trial = True
            self._move_to(self._ceiling)
