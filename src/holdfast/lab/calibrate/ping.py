"""ping as an instrument: round trips, and when the answers came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import LabError
from holdfast.lab.calibrate.programs import Programs
from holdfast.lab.cloud import Cloud
from holdfast.lab.priority import WORKER_PRIORITY

INTERVAL_MS = 10
"""Short enough to see a silence of 50 ms, long enough for an idle network."""
_GRACE_S = 20.0
_ANSWER = re.compile(r"^\[(\d+\.\d+)\] \d+ bytes from \S+ icmp_seq=\d+ ttl=\d+ time=([\d.]+) ms", re.MULTILINE)
_SUMMARY = re.compile(r"^(\d+) packets transmitted, (\d+) received", re.MULTILINE)


@dataclass(frozen=True)
class Echoes:
    """What came back, in the order of its coming."""

    num_sent: int
    rtt_ms: tuple[float, ...]
    came_at_s: tuple[float, ...]

    @property
    def longest_silence_ms(self) -> float:
        """Between two answers; what a frozen host held back comes at the end of its silence."""
        return max((later - earlier for earlier, later in pairwise(self.came_at_s)), default=0.0) * 1e3


def ping(cloud: Cloud, sender: int, receiver: int, seconds: int) -> Echoes:
    """Small packets there and back for so long, one about every 10 ms (ping takes up to 16 of them)."""
    command = ["ping", "-n", "-D", "-i", str(INTERVAL_MS / 1e3), "-w", str(seconds), cloud.hosts[receiver].address]
    with Programs(cloud) as programs:
        program = programs.start(sender, command, priority=WORKER_PRIORITY)
        programs.finish([program], seconds + _GRACE_S)
    return parse(program.output)


def parse(output: str) -> Echoes:
    """What `ping -D` printed, in iputils' words."""
    answers = [(float(at_s), float(rtt_ms)) for at_s, rtt_ms in _ANSWER.findall(output)]
    summary = _SUMMARY.search(output)
    if summary is None or not answers:
        raise LabError(f"ping's output is not that of iputils: {output[-200:]!r}", what_to_try="iputils' ping")
    return Echoes(int(summary[1]), tuple(rtt for _, rtt in answers), tuple(at for at, _ in answers))
