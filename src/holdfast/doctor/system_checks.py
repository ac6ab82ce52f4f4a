"""Judges the system: native module, kernel, torch, cores, clock, timers."""

from __future__ import annotations

import math
import re

from holdfast.doctor.facts import Facts
from holdfast.doctor.finding import Finding, advice, ok, problem

OLDEST_KERNEL = (5, 11)  # epoll_pwait2: waits in nanoseconds
OLDEST_TORCH = (2, 9)  # as in pyproject.toml; tests keep both in step
TESTED_TORCH = "2.13"
# Reading the clock without a system call takes tens of nanoseconds, with one (hpet, acpi_pm) a microsecond and more.
SLOW_CLOCK_NS = 500
WALL_JUMP_MS = 10
# A stage has half of the bound. A wake-up that is late by a quarter of that is felt in every operation it hits.
LATE_SHARE_OF_STAGE = 0.25
_CLOCK_SOURCES = "/sys/devices/system/clocksource/clocksource0"


def check_extension(facts: Facts) -> Finding:
    error = facts.system.extension_error
    if not error:
        return ok("extension", f"loads ({facts.system.libc or 'unknown libc'})")
    if "libcrypto" in error:
        remedy = "sudo apt-get install libssl3  # Debian, Ubuntu; on Fedora: sudo dnf install openssl-libs"
    elif "GLIBC" in error:
        remedy = f"# it needs glibc 2.35 or newer, here is {facts.system.libc}: take a newer image, such as debian:12"
    else:
        remedy = "pip install --force-reinstall --no-deps .  # in Holdfast's source tree, with this Python"
    return problem("extension", f"cannot be loaded: {error}", "nothing of Holdfast runs", remedy)


def check_kernel(facts: Facts) -> Finding:
    release = facts.system.kernel
    version = _numbers(release)
    if version >= OLDEST_KERNEL:
        return ok("kernel", f"Linux {release}")
    missing = ["waits are rounded up to whole milliseconds"]
    if version < (5, 0):
        missing.append("no GRO: every datagram is a read of its own")
    if version < (4, 18):
        missing.append("no GSO: every datagram crosses the stack by itself")
    return advice(
        "kernel",
        f"Linux {release}; 5.11 or newer is needed for full speed, and is what is tested",
        "; ".join(missing),
        "sudo apt-get install linux-generic-hwe-$(lsb_release -rs) && sudo reboot  # Ubuntu; elsewhere: a newer release",
    )


def check_torch(facts: Facts) -> Finding:
    torch = facts.system.torch
    remedy = f"pip install 'torch>={'.'.join(map(str, OLDEST_TORCH))}'"
    if torch.version is None:
        return problem("torch", f"cannot be imported: {torch.error}", "holdfast.attach needs it", remedy)
    if _numbers(torch.version) < OLDEST_TORCH:
        return problem(
            "torch",
            f"{torch.version} is too old",
            "holdfast.attach is not made for it",
            f"{remedy}  # tested: {TESTED_TORCH}",
        )
    if not torch.has_gloo:
        return problem(
            "torch",
            f"{torch.version} was built without Gloo",
            "ranks cannot form the process group through which they find each other",
            f"{remedy}  # a build from PyTorch itself has it",
        )
    is_tested = torch.version.startswith(f"{TESTED_TORCH}.")
    return ok("torch", torch.version if is_tested else f"{torch.version} (tested with {TESTED_TORCH})")


def check_cores(facts: Facts) -> Finding:
    ranks, cpus, quota = facts.plan.num_local_ranks, facts.system.num_cpus, facts.system.cpu_quota
    usable = cpus if quota is None else min(cpus, quota)
    found = f"{usable:g} for {ranks} {'rank' if ranks == 1 else 'ranks'}"
    if quota is not None and quota < cpus:
        return advice(
            "cores",
            f"{found}: the cgroup grants the time of {quota:g} cores on {cpus}",
            "when that time is used up the kernel stops all ranks at once, by default for up to 100 ms, and they look "
            "like stragglers",
            "# give whole cores instead of a share of time: docker run --cpuset-cpus=0-3 ...; in Kubernetes requests =",
            "# limits in whole CPUs with cpuManagerPolicy static, or no CPU limit",
        )
    if ranks > usable:
        return advice(
            "cores",
            found,
            "ranks wait for a core in turn: deadlines are measured longer, and ranks look late that are only waiting",
            f"torchrun --nproc-per-node {max(1, int(usable))} ...",
        )
    return ok("cores", found)


def check_clock(facts: Facts) -> Finding:
    clock = facts.clock
    source = clock.source or "unknown source"
    change = f"echo tsc | sudo tee {_CLOCK_SOURCES}/current_clocksource"
    if clock.num_backward:
        return problem(
            "clock",
            f"{source}: the monotonic clock ran backwards {clock.num_backward} times",
            "no deadline can be kept: bounds and round trips are measured with this clock",
            "sudo dmesg | grep -i -e clocksource -e tsc",
            f"cat {_CLOCK_SOURCES}/available_clocksource  # then, with another one than {source}:",
            f"echo kvm-clock | sudo tee {_CLOCK_SOURCES}/current_clocksource",
        )
    if clock.read_ns > SLOW_CLOCK_NS:
        return advice(
            "clock",
            f"{source}: {clock.read_ns:,.0f} ns a reading",
            "every reading is a system call; the I/O thread reads it for every batch of datagrams",
            f"cat {_CLOCK_SOURCES}/available_clocksource  # if tsc or kvm-clock is among them:",
            change,
        )
    if clock.wall_jump_ms > WALL_JUMP_MS:
        return advice(
            "clock",
            f"{source}; the wall clock jumped by {clock.wall_jump_ms:,.0f} ms while it was watched",
            "deadlines are not affected; times in the logs of different hosts cannot be compared",
            "timedatectl timesync-status || chronyc tracking",
        )
    return ok("clock", f"{source}, {clock.read_ns:.0f} ns a reading")


def check_timers(facts: Facts) -> Finding:
    config, late_ms = facts.plan.config, facts.clock.lateness_p99_us / 1e3
    bound_ms = config.deadline_floor_ms if config.deadline_ms is None else config.deadline_ms
    found = f"a sleep of 1 ms returns {facts.clock.lateness_p50_us / 1e3:.2f} ms late (p50), {late_ms:.2f} ms (p99)"
    if late_ms <= LATE_SHARE_OF_STAGE * bound_ms / 2:
        return ok("timers", found)
    setting = "DEADLINE_FLOOR_MS" if config.deadline_ms is None else "DEADLINE_MS"
    enough_ms = _round_up(2 * late_ms / LATE_SHARE_OF_STAGE)
    return advice(
        "timers",
        found,
        f"{_when_bound_is(config.deadline_ms, bound_ms)} a stage has {bound_ms / 2:g} ms; with wake-ups that late the "
        "scheduler decides who is late, not the network",
        "vmstat 1 5  # r above the number of cores: too much runs here; st above 0: the hypervisor takes time away",
        f"export HOLDFAST_{setting}={enough_ms}  # on all ranks, if it stays like that",
    )


def _when_bound_is(given_ms: float | None, bound_ms: float) -> str:
    return f"if the measured bound falls to its floor of {bound_ms:g} ms," if given_ms is None else "by the bound given"


def _round_up(milliseconds: float) -> int:
    """To a number that is the same on every host that is about as late."""
    scale = 10.0 ** math.floor(math.log10(milliseconds))
    return int(next(step for step in (2, 5, 10) if step * scale >= milliseconds) * scale)


def _numbers(version: str) -> tuple[int, ...]:
    """(major, minor) of a version; what does not begin like one is newer than everything, so that nothing is claimed."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (1 << 30, 0)
