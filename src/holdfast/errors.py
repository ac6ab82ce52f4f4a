"""Every exception Holdfast raises, in one tree.

    HoldfastError
    ├── ConfigError              a setting is missing, malformed or contradicts another
    ├── AttachError              this model cannot be attached (not DDP, twice, unused parameters, ...)
    │   └── UnsupportedGradient  sparse, integer or complex gradients
    ├── JoinError                the job could not be formed
    │   ├── PeerNeverJoined      a rank did not appear before the join deadline
    │   ├── PeerUnreachable      a rank appeared but its datagrams do not arrive (firewall, wrong interface)
    │   ├── KeyMismatch          a rank holds another job key
    │   └── LoopbackAcrossHosts  the chosen interface cannot be reached from the other hosts
    ├── OperationError           an operation could not give a usable answer
    │   ├── DeadlineExceeded     exact delivery ran out of time; `peers` did not deliver
    │   ├── PeerDead             a peer fell silent; `peers` names it
    │   ├── BucketMismatch       ranks called with different shapes, dtypes or bucket order
    │   └── LossBudgetExceeded   the network loses more than an update is worth; `peers` lost most
    ├── HandleClosed             the handle or engine was used after it was closed
    ├── LabError                 the lab could not do its part
    │   ├── LabUnavailable       this machine or user lacks what the lab needs
    │   ├── BrokenLabFile        a profile, schedule or fault file that cannot be read as one
    │   └── SwitchFailed         the lab's switch ended or does not answer
    └── PlanError                no pipeline plan can be made from this input
        ├── ImpossibleShape      a count of stages, pipelines or micro-batches that no job can have
        ├── UnknownWorker        a dead worker that the job does not have
        ├── StageLost            a stage has no live worker left
        ├── TimesNotPositive     a stage time of zero or less, or not a whole number
        ├── MemoryTooSmall       not even one micro-batch fits beside a stage's state
        ├── BrokenProfile        a profile file that cannot be read as one
        ├── BrokenTrace          an availability trace that cannot be read as one, or goes backwards
        ├── InvalidPlan          a plan that breaks a rule of the pipeline; `violations` lists them
        └── NoPlanStored         the plan store holds no plan for this many failures

A lost packet is not an exception: it is reported in the `Outcome`. Exceptions are for what the caller must act on,
so each one ends with what to try.
"""

from __future__ import annotations

from collections.abc import Sequence


class HoldfastError(Exception):
    """Base of all Holdfast errors: what happened, to whom, when, and what to try."""

    def __init__(
        self,
        message: str,
        *,
        what_to_try: str = "",
        peers: Sequence[int] = (),
        bucket: int | None = None,
        elapsed_ms: float | None = None,
        deadline_ms: float | None = None,
    ) -> None:
        self.message = message
        self.what_to_try = what_to_try
        self.peers = tuple(peers)
        self.bucket = bucket
        self.elapsed_ms = elapsed_ms
        self.deadline_ms = deadline_ms
        super().__init__(self._text())

    def _text(self) -> str:
        facts = []
        if self.peers:
            facts.append("peer " + ", ".join(f"rank {rank}" for rank in self.peers))
        if self.bucket is not None:
            facts.append(f"bucket {self.bucket}")
        if self.elapsed_ms is not None:
            facts.append(f"after {self.elapsed_ms:.1f} ms")
        if self.deadline_ms is not None:
            facts.append(f"deadline {self.deadline_ms:.1f} ms")
        text = self.message
        if facts:
            text += f" [{'; '.join(facts)}]"
        if self.what_to_try:
            text += f"{'' if text.endswith(('.', ']')) else '.'} Try: {self.what_to_try}"
        return text


class ConfigError(HoldfastError):
    """A setting is missing, malformed or contradicts another one."""


class AttachError(HoldfastError):
    """The model cannot be attached as it is."""


class UnsupportedGradient(AttachError):
    """A gradient is sparse, integer or complex; Holdfast averages dense floating-point gradients."""


class JoinError(HoldfastError):
    """The job could not be formed before the join deadline."""


class PeerNeverJoined(JoinError):
    """A rank did not publish its address before the join deadline."""


class PeerUnreachable(JoinError):
    """A rank published its address, but no authenticated datagram came back from it."""


class KeyMismatch(JoinError):
    """A rank holds another job key, so its datagrams do not authenticate."""


class LoopbackAcrossHosts(JoinError):
    """The job spans several hosts, but a rank offered a loopback address."""


class OperationError(HoldfastError):
    """An operation could not give a usable answer."""


class DeadlineExceeded(OperationError):
    """Exact delivery did not finish in time; `peers` are those that did not deliver."""


class PeerDead(OperationError):
    """A peer has been silent for longer than the configured limit."""


class BucketMismatch(OperationError):
    """Ranks called the same operation with different shapes, dtypes or bucket order."""


class LossBudgetExceeded(OperationError):
    """Steps lost more of their contributions than the loss budget allows; `peers` are those of which most was lost."""


class HandleClosed(HoldfastError):
    """The handle or engine has been closed."""


class LabError(HoldfastError):
    """The lab could not do its part."""


class LabUnavailable(LabError):
    """This machine or this user lacks what the lab's hosts need; plain loopback stays available."""


class BrokenLabFile(LabError):
    """A profile, schedule or fault file cannot be read as one."""


class SwitchFailed(LabError):
    """The lab's switch ended, or does not answer."""


class PlanError(HoldfastError):
    """No pipeline plan can be made from this input."""


class ImpossibleShape(PlanError):
    """A count of stages, pipelines or micro-batches that no job can have."""


class UnknownWorker(PlanError):
    """A worker was named that the job does not have."""


class StageLost(PlanError):
    """Every replica of a stage is dead, so its weights are gone."""


class TimesNotPositive(PlanError):
    """A stage time is zero, negative or not a whole number of ticks."""


class MemoryTooSmall(PlanError):
    """Not even one micro-batch fits beside the state of a stage."""


class BrokenProfile(PlanError):
    """A profile file cannot be read as one."""


class BrokenTrace(PlanError):
    """An availability trace cannot be read as one, or goes backwards in time."""


class InvalidPlan(PlanError):
    """A plan breaks a rule of the pipeline; `violations` says which, where and when."""

    def __init__(self, message: str, *, what_to_try: str = "", violations: Sequence[str] = ()) -> None:
        self.violations = tuple(violations)
        super().__init__(message, what_to_try=what_to_try)


class NoPlanStored(PlanError):
    """The plan store holds no plan for this many failures."""
