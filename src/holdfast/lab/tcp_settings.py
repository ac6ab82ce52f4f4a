"""TCP's settings inside a host: congestion control and the least retransmission timeout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import LabUnavailable

_IPV4 = Path("/proc/sys/net/ipv4")
_ALLOWED = _IPV4 / "tcp_allowed_congestion_control"
_RTO_MIN = _IPV4 / "tcp_rto_min_us"
USUAL_RTO_MIN_US = 200_000
"""What Linux has compiled in."""


@dataclass(frozen=True)
class TcpSettings:
    """What new connections of a host start with."""

    congestion_control: str
    rto_min_us: int


def read() -> TcpSettings:
    """The settings of the calling thread's network."""
    rto_min_us = int(_RTO_MIN.read_text()) if _RTO_MIN.exists() else USUAL_RTO_MIN_US
    return TcpSettings((_IPV4 / "tcp_congestion_control").read_text().strip(), rto_min_us)


def write(*, congestion_control: str | None, rto_min_us: int | None) -> None:
    """Sets what is given in the calling thread's network."""
    if congestion_control is not None:
        _write(_IPV4 / "tcp_congestion_control", congestion_control)
    if rto_min_us is None or (rto_min_us == USUAL_RTO_MIN_US and not _RTO_MIN.exists()):
        return
    if not _RTO_MIN.exists():
        raise LabUnavailable(
            "this kernel has no tcp_rto_min_us, so its TCP cannot be tuned",
            what_to_try="Linux 6.11 or newer, or peers without -tuned",
        )
    _write(_RTO_MIN, str(rto_min_us))


@contextmanager
def allowed(congestion_control: str | None) -> Iterator[None]:
    """While this lasts, namespaces may choose the algorithm; then the machine's own list is as it was.

    A namespace refuses an algorithm that the initial namespace does not allow, but only when it is chosen: what was
    chosen stays. So the machine's setting changes for a moment only. The lock is for labs that start together.
    """
    if congestion_control is None:
        yield
        return
    with _ALLOWED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = lock.read().strip()
        if congestion_control in before.split():
            yield
            return
        available = (_IPV4 / "tcp_available_congestion_control").read_text().split()
        if congestion_control not in available:
            raise LabUnavailable(
                f"this kernel has no congestion control {congestion_control!r}",
                what_to_try=f"one of {', '.join(available)}",
            )
        try:
            _write(_ALLOWED, f"{before} {congestion_control}")
            yield
        finally:
            _write(_ALLOWED, before)


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise LabUnavailable(
            f"cannot set {path.name} to {value!r}: {error.strerror}", what_to_try="run as root"
        ) from error
