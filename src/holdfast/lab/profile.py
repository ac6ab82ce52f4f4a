"""Profiles: what a network is like, as files. `models` says what the file stands for, `promise` what it will measure.

    models = "..."                  # prose
    [port]                          # every host's link; fields of `conditions.Port`, and shares of the line rate
    rate_ratio = 1.0                # or uplink_ratio, downlink_ratio
    [path]                          # every path; fields of `conditions.Path`; a list is dealt to the senders in turn
    loss_ratio = 0.01
    [[hosts]]                       # some hosts differ
    which = "one"                   # one (chosen by the seed), last, or a number
    rate_ratio = 0.25
    [promise]                       # what `holdfast lab calibrate` measures from outside
    loss_ratio = 0.01

A list in `[port]` is dealt to the hosts in turn: `rate_ratio = [1.0, 0.5]` makes every other host's link half as fast.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BrokenLabFile
from holdfast.lab import lab_file
from holdfast.lab.conditions import Conditions, Path, Port
from holdfast.lab.conditions import native_conditions as _native_conditions

FOLDER = "profiles"
# What two busy cores still switch in time, shared by all hosts.
TOTAL_BITS_PER_S = 1e9
MAX_HOSTS = 64
_RATES = ("rate_ratio", "uplink_ratio", "downlink_ratio")
_TABLES = {"models", "port", "path", "hosts", "promise"}


@dataclass(frozen=True)
class Promise:
    """Figures that ping, iperf3 and Gloo will find; absent ones are not promised."""

    rtt_ms: float | None = None
    """Median round trip of a ping on an idle network."""
    loss_ratio: float | None = None
    """Share of small UDP packets lost one way."""
    bandwidth_ratio: float | None = None
    """What one UDP flow between two ordinary hosts gets of the line rate, at most."""
    slowest_bandwidth_ratio: float | None = None
    """The same, to the host that is worst off."""
    allreduce_p99_to_p50: float | None = None
    """P99 / P50 of a small Gloo all-reduce (2 K gradients), the measure of the OptiReduce paper."""
    longest_silence_ms: float | None = None
    """The longest time in which a host answers no ping."""


@dataclass(frozen=True)
class Profile:
    """A network by name, for any number of hosts."""

    name: str
    models: str
    promise: Promise
    port: Mapping[str, Any]
    path: Mapping[str, Any]
    hosts: tuple[Mapping[str, Any], ...]

    def conditions(self, num_hosts: int, *, bits_per_s: float | None = None, seed: int = 0) -> Conditions:
        """This network for so many hosts; the line rate is 1 Gbit/s divided by the hosts unless given."""
        line_rate = default_bits_per_s(num_hosts) if bits_per_s is None else bits_per_s
        ports = [self._port(index, _dealt(self.port, index), line_rate) for index in range(num_hosts)]
        for index, changes in self._different_hosts(num_hosts, seed):
            ports[index] = self._port(index, {**_dealt(self.port, index), **changes}, line_rate)
        paths = {
            (sender, receiver): lab_file.record(Path, _dealt(self.path, sender), f"{self.name}: path")
            for sender in range(num_hosts)
            for receiver in range(num_hosts)
            if sender != receiver
        }
        conditions = Conditions(tuple(ports), paths)
        try:
            _native_conditions(conditions.to_json())
        except (ValueError, TypeError) as error:
            raise BrokenLabFile(f"profile {self.name}: {error}") from error
        return conditions

    def different_hosts(self, num_hosts: int, seed: int) -> list[int]:
        """The hosts that the profile singles out: a straggler, say."""
        return sorted({index for index, _ in self._different_hosts(num_hosts, seed)})

    def _port(self, index: int, values: Mapping[str, Any], line_rate: float) -> Port:
        where = f"{self.name}: port of host {index}"
        for name in _RATES:
            ratio = values.get(name, 1.0)
            if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 < ratio <= 1:
                raise BrokenLabFile(f"{where}: {name} is {ratio!r}", what_to_try="a share of the line rate, in (0, 1]")
        both = values.get("rate_ratio", 1.0)
        rates = {
            f"{direction}_bits_per_s": line_rate * values.get(f"{direction}_ratio", both)
            for direction in ("uplink", "downlink")
        }
        return lab_file.record(Port, {**{k: v for k, v in values.items() if k not in _RATES}, **rates}, where)

    def _different_hosts(self, num_hosts: int, seed: int) -> list[tuple[int, dict[str, Any]]]:
        chosen = []
        for position, table in enumerate(self.hosts):
            changes = {name: value for name, value in table.items() if name != "which"}
            index = choose_host(table.get("which"), num_hosts, f"{seed}/{self.name}/{position}", self.name)
            chosen.append((index, changes))
        return chosen


def default_bits_per_s(num_hosts: int) -> float:
    return TOTAL_BITS_PER_S / num_hosts


def choose_host(which: Any, num_hosts: int, seed: str, where: str) -> int:
    """A host's number from what a file says: a number, `last`, or `one`, which the seed chooses."""
    if which == "one":
        return random.Random(seed).randrange(num_hosts)
    if which == "last":
        return num_hosts - 1
    if type(which) is int and 0 <= which < num_hosts:
        return which
    raise BrokenLabFile(f"{where}: no host {which!r} among {num_hosts}", what_to_try="a number, `last` or `one`")


def shipped_profiles() -> list[str]:
    return lab_file.shipped(FOLDER)


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or a file."""
    document = lab_file.load(FOLDER, name_or_path)
    for name in document:
        if name not in _TABLES:
            raise BrokenLabFile(f"{name_or_path}: unknown {name!r}", what_to_try=f"one of {', '.join(sorted(_TABLES))}")
    if not isinstance(document.get("models"), str):
        raise BrokenLabFile(f"{name_or_path}: `models` is missing", what_to_try="a sentence on what it stands for")
    profile = Profile(
        name=name_or_path,
        models=" ".join(document["models"].split()),
        promise=lab_file.record(Promise, document.get("promise", {}), f"{name_or_path}: promise"),
        port=_table(document, "port", name_or_path),
        path=_table(document, "path", name_or_path),
        hosts=tuple(_host_tables(document, name_or_path)),
    )
    profile.conditions(2)
    return profile


def promised(promise: Promise) -> dict[str, float]:
    """The figures that are promised, by name."""
    return {name: value for name, value in dataclasses.asdict(promise).items() if value is not None}


def _table(document: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BrokenLabFile(f"{where}: {name} must be a table")
    return table


def _host_tables(document: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    tables = document.get("hosts", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BrokenLabFile(f"{where}: hosts must be a list of tables ([[hosts]])")
    return tables


def _dealt(table: Mapping[str, Any], index: int) -> dict[str, Any]:
    for name, value in table.items():
        if value == []:
            raise BrokenLabFile(f"{name} is an empty list")
    return {name: value[index % len(value)] if isinstance(value, list) else value for name, value in table.items()}
