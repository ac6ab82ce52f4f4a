"""The slowest operation is the one that is kept, and only records are asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from telemetry.operations import QUIET

from holdfast.lab.bench import grid, slowest
from holdfast.lab.bench.row import Operation, Setting, Tally
from holdfast.lab.peer import peer_named

PEER = peer_named("holdfast")


def test_a_record_replaces_what_was_slowest_before() -> None:
    asked: list[str] = []

    def last_seen(peer: Any) -> list[slowest.Witness]:
        asked.append(peer.name)
        return [slowest.Witness(QUIET, 1_000)]

    tally = Tally()
    for start_ns, seconds in enumerate((0.01, 0.03, 0.02)):
        tally.operations.append(Operation(seconds, 1.0, 0, None))
        grid._keep_slowest(tally, PEER, SimpleNamespace(last_seen=last_seen), start_ns)  # type: ignore[arg-type]
    assert tally.slowest is not None
    assert (tally.slowest.operation.seconds, tally.slowest.start_ns) == (0.03, 1)
    assert len(asked) == 2


def test_who_cannot_tell_has_none() -> None:
    tally = Tally(operations=[Operation(0.01, 1.0, 0, None)])
    grid._keep_slowest(tally, peer_named("gloo"), SimpleNamespace(last_seen=lambda _: []), 0)  # type: ignore[arg-type]
    assert tally.slowest is None


def test_what_is_known_of_the_circumstances_is_said(tmp_path: Path) -> None:
    operation = Operation(0.0402, 1.0, 0, 0.03, frozen_hosts=(2,), woke_late_s=0.0004)
    found = slowest.Slowest(operation, 1_000_000, [slowest.Witness(QUIET, 3_500_000)])
    slowest.write(tmp_path, Setting("stalls", 3, 3_000, 0, None, 250e6), {"holdfast": found}, 20)
    heading, circumstances = (tmp_path / "stalls-3000-holdfast.txt").read_text().splitlines()[:2]
    assert heading == "holdfast, stalls, 3,000 bytes: the slowest of 20 operations, 40.2 ms"
    assert circumstances == (
        "host 2 frozen meanwhile; no transport could have done it in less than 30.0 ms; "
        "the last rank began 0.4 ms after the common start; it opened 2.5 ms after that start, by rank"
    )
    assert heading in (tmp_path / "stalls-3000-holdfast.svg").read_text()


def test_each_peer_has_files_of_its_own_on_a_network_with_a_dot_in_its_name(tmp_path: Path) -> None:
    found = slowest.Slowest(Operation(0.04, 1.0, 0, None), 0, [slowest.Witness(QUIET, 0)])
    peers = {"holdfast": found, "holdfast-exact": found}
    slowest.write(tmp_path, Setting("shared-1.5", 3, 3_000, 0, None, 250e6), peers, 20)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"shared-1.5-3000-{peer}.{kind}" for peer in peers for kind in ("svg", "txt")}
