"""However a lab ends, and whenever, nothing of it stays: no process, no namespace, no device.

Its ranks start processes that leave their session, which only the mark can find.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.lab_processes import marked_processes, needs_lab, network_namespaces_left, wait_until

pytestmark = needs_lab

NOTICE_LIMIT_S = 5.0
STAYS = "setsid sleep 60 & echo up $(stat -L -c %i /proc/self/ns/net); exec sleep 60"
ENDS = "echo up $(stat -L -c %i /proc/self/ns/net)"
LAB = [sys.executable, "-c", "from holdfast.cli import main; main()", "lab", "run", "--hosts", "2"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


class RunningLab:
    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen([*LAB, "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True)
        self.networks: set[int] = set()
        self.ended_at_s = math.inf

    def wait_for_ranks(self) -> None:
        assert self.process.stdout is not None
        for _ in range(2):
            line = self.process.stdout.readline()
            found = re.fullmatch(r"\[[01]\] up (\d+)\n", line)
            assert found, line
            self.networks.add(int(found[1]))
        assert len(self.networks) == 2

    def wait_for_switch(self) -> None:
        wait_until(lambda: bool(marked_processes(self.process.pid)), 30, "the switch's process")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def send(self, number: signal.Signals) -> None:
        self.ended_at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.process.send_signal(number)

    def is_gone(self) -> bool:
        left = network_namespaces_left(self.process.pid, self.ended_at_s)
        return not marked_processes(self.process.pid) and not self.networks & left


@pytest.mark.parametrize("moment", ["importing", "building", "running", "ending"])
def test_nothing_stays(moment: str) -> None:
    """One lab for every signal, side by side: they must not mistake each other's processes for their own either."""
    devices = set(os.listdir("/sys/class/net"))
    labs = {number: RunningLab(ENDS if moment == "ending" else STAYS) for number in CODES}
    try:
        for number, lab in labs.items():
            if moment == "importing":
                time.sleep(0.1)
            elif moment == "building":
                lab.wait_for_switch()
            else:
                lab.wait_for_ranks()
            lab.send(number)
        for number, lab in labs.items():
            assert lab.process.wait(20) in codes(moment, number), number
            wait_until(lab.is_gone, NOTICE_LIMIT_S, f"after {number.name}: {marked_processes(lab.process.pid)} to end")
        assert set(os.listdir("/sys/class/net")) == devices
    finally:
        for lab in labs.values():
            lab.close()


def codes(moment: str, number: signal.Signals) -> set[int]:
    """A lab that has ended already keeps its own code; one that has nothing to take down dies of the signal itself."""
    others = {"importing": {-number, 1}, "ending": {-number, 1, 0}}
    return {CODES[number]} | others.get(moment, set())


def test_the_second_signal_does_not_disturb_the_ending() -> None:
    lab = RunningLab("trap '' TERM; echo up $(stat -L -c %i /proc/self/ns/net); while :; do sleep 0.1; done")
    lab.wait_for_ranks()
    for _ in range(3):
        lab.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert lab.process.wait(20) == CODES[signal.SIGINT]
    wait_until(lab.is_gone, NOTICE_LIMIT_S, "the kernel to take the last process away")
    lab.close()


def test_what_a_killed_switch_cannot_end_clean_does() -> None:
    lab = RunningLab(STAYS)
    lab.wait_for_ranks()
    (switch,) = [pid for pid, command in marked_processes(lab.process.pid).items() if "switch_process" in command]
    lab.process.send_signal(signal.SIGSTOP)  # or the lab would see its switch die, and end everything itself
    os.kill(switch, signal.SIGKILL)
    lab.process.kill()
    lab.process.wait(20)
    # The ranks notice by themselves; what had left their sessions does not.
    wait_until(
        lambda: [command.strip() for command in marked_processes(lab.process.pid).values()] == ["sleep 60"] * 2,
        NOTICE_LIMIT_S,
        f"the end of the ranks themselves: {marked_processes(lab.process.pid)}",
    )
    clean = subprocess.run([*LAB[:3], "lab", "clean"], capture_output=True, text=True, timeout=60)
    assert clean.returncode == 0
    assert len(re.findall(r"^ended: process \d+ of lab \w+: sleep 60$", clean.stdout, re.MULTILINE)) >= 2
    wait_until(lab.is_gone, NOTICE_LIMIT_S, "the kernel to take the last process away")
    lab.close()


def test_a_dead_switch_ends_the_job_with_its_name() -> None:
    lab = subprocess.Popen([*LAB, "--", "sleep", "60"], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(marked_processes(lab.pid)) == 3, 30, "switch and ranks")
    (switch,) = [pid for pid, command in marked_processes(lab.pid).items() if "switch_process" in command]
    os.kill(switch, signal.SIGKILL)
    _, said = lab.communicate(timeout=30)
    assert lab.returncode == 2
    assert "SwitchFailed: the lab's switch ended with code -9" in said
    wait_until(lambda: not marked_processes(lab.pid), NOTICE_LIMIT_S, "the end of the ranks")
    assert not Path(f"/proc/{switch}").exists()
