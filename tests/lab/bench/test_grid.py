"""The grid over real hosts: every peer on its own TCP, turns, repeats of what the machine disturbed, deaths."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
from itertools import pairwise
from typing import Any

import pytest

from holdfast.config import Config
from holdfast.errors import LabError
from holdfast.lab.bench import grid
from holdfast.lab.bench.row import Measured
from holdfast.lab.bench.session import PeerFailed, Session
from holdfast.lab.cloud import Cloud
from holdfast.lab.lateness import Lateness
from holdfast.lab.peer import Peer, parse_peers
from lab.lab_processes import needs_lab


def plan(**changes: Any) -> grid.Plan:
    peers = parse_peers("holdfast,gloo-cubic,gloo-tuned,gloo-tuned-bf16,holdfast-bf16")
    return dataclasses.replace(grid.Plan(peers, 2, ["lossy-1"], [20_000], 6, Config()), **changes)


@needs_lab
def test_all_peers_meet_the_lab_network_and_are_right() -> None:
    (rows,) = grid.run(plan())
    assert [row.peer for row in rows] == ["holdfast", "gloo-cubic", "gloo-tuned", "gloo-tuned-bf16", "holdfast-bf16"]
    assert [(row.congestion_control, row.rto_min_ms) for row in rows[1:3]] == [("cubic", 200), ("bbr", 5)]
    for row in rows:
        assert row.wrong == 0
        assert row.lower_bound_ms is not None
        assert row.capacity_bound_p50_ms == pytest.approx(row.lower_bound_ms, rel=0.01)
        assert row.lower_bound_ms < row.p50_ms <= row.p99_ms
        assert row.late_p999_ms is not None
        assert row.late_p999_ms > 0
        assert row.sent_packets is not None
        assert row.sent_packets > sum(row.lost_packets.values())
    assert sum(sum(row.lost_packets.values()) for row in rows) > 0


@needs_lab
def test_a_frozen_host_is_found() -> None:
    peers = parse_peers("holdfast")
    with Cloud(2, "clean") as cloud, Session(peers, 2, Config(deadline_ms=50), cloud) as session:
        session.set_size(8192)
        start_ns, measured = session.operation(peers[0])
        assert grid.frozen_hosts(cloud, start_ns, measured) == ()
        cloud.change("freeze", lambda now: now.with_port(1, lambda port: dataclasses.replace(port, frozen=True)))
        start_ns, measured = session.operation(peers[0])
        assert grid.frozen_hosts(cloud, start_ns, measured) == (1,)
        assert measured[0].delivered_ratio < 1


@needs_lab
def test_a_series_is_operations_back_to_back() -> None:
    peers = parse_peers("holdfast")
    with Cloud(2, "clean") as cloud, Session(peers, 2, Config(deadline_ms=200), cloud) as session:
        session.set_size(8192)
        by_rank = session.series(peers[0], 5)
    assert [len(of_rank) for of_rank in by_rank] == [5, 5]
    for of_rank in by_rank:
        assert all(one.wrong == 0 and len(one.stages) == 2 for one in of_rank)
        assert all(one.ended_ns < following.began_ns for one, following in pairwise(of_rank))


@needs_lab
def test_a_disturbed_cell_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter([False] * 2 + [True] * 100)
    monkeypatch.setattr(Lateness, "trusted", property(lambda _self: next(verdicts)))
    # How late this machine wakes its ranks is not asked.
    monkeypatch.setattr("holdfast.lab.bench.row.TRUSTED_P999_MS", math.inf)
    (rows,) = grid.run(plan(peers=parse_peers("holdfast,gloo-tuned"), iterations=2))
    assert {row.attempts for row in rows} <= {1, 2}
    assert next(verdicts, None) is not None
    assert len(list(verdicts)) == 100 - 3, "two rows of the first attempt, two of the second, one asked here"


def test_what_is_measured_already_is_not_missing() -> None:
    asked = plan(profiles=["clean", "lossy-1"], sizes=[8192, 1 << 20])
    assert grid.missing_cells(asked, []) == asked.cells
    assert asked.cells == [("clean", 8192), ("clean", 1 << 20), ("lossy-1", 8192), ("lossy-1", 1 << 20)]


@needs_lab
def test_a_rank_that_dies_is_named() -> None:
    peers = parse_peers("gloo-tuned")
    with Cloud(2, "clean") as cloud, Session(peers, 2, Config(), cloud) as session:
        assert session._workers is not None
        session.set_size(8192)
        os.killpg(session._workers.workers[1].process.pid, signal.SIGKILL)
        with pytest.raises(LabError, match=r"rank [01] of the benchmark"):
            session.operation(peers[0])


@needs_lab
def test_the_others_go_on_without_a_peer_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = Session.operation

    def fail_once(session: Session, peer: Peer) -> tuple[int, list[Measured]]:
        if peer.name == "gloo-cubic":
            raise PeerFailed(peer.name, "rank 1 has had enough")
        return operation(session, peer)

    monkeypatch.setattr(Session, "operation", fail_once)
    failures: list[str] = []
    asked = plan(peers=parse_peers("holdfast,gloo-cubic"), iterations=2, sizes=[4096, 8192])
    cells = list(grid.run(asked, on_failure=lambda profile, failure: failures.append(f"{profile}: {failure}")))
    assert [[(row.peer, row.bytes) for row in rows] for rows in cells] == [[("holdfast", 4096)], [("holdfast", 8192)]]
    assert failures == ["lossy-1: gloo-cubic: rank 1 has had enough"]
    assert grid.missing_cells(asked, [row for rows in cells for row in rows]) == asked.cells, "--resume tries again"
