from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from holdfast.errors import InvalidPlan, NoPlanStored, StageLost, UnknownWorker
from holdfast.reroute import PlanStore, Worker, uniform_job, violations
from holdfast.reroute.store import Placement

JOB = uniform_job(3, 3, 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PlanStore:
    """Through a file, as a run would get it."""
    path = tmp_path_factory.mktemp("plans") / "store.json"
    PlanStore.prepare(JOB, 3).save(path)
    return PlanStore.load(path)


def check_placement(placement: Placement, dead: set[Worker]) -> None:
    """The mapped plan is valid on the real places, and nobody dead or doubly used sits anywhere."""
    vacant = dead - {move.takes_place_of for move in placement.moves} | {move.worker for move in placement.moves}
    job = JOB.with_failed(vacant)
    assert not violations(job, placement.operations(), placement.plan.period, synchronous=False)
    seated = list(placement.seats.values())
    assert len(set(seated)) == len(seated) == JOB.shape.num_workers - len(dead)
    assert not set(seated) & dead
    for stage, row in enumerate(placement.permutation):
        assert sorted(row) == list(range(JOB.shape.pipelines))
        for k in range(JOB.shape.pipelines):
            assert (Worker(k, stage) in placement.plan.job.failed) == (Worker(row[k], stage) in vacant)


def test_every_single_double_and_triple_loss_finds_its_plan(store: PlanStore) -> None:
    for count in (1, 2, 3):
        for dead in combinations(JOB.shape.workers(), count):
            try:
                JOB.with_failed(dead)
            except StageLost:
                continue
            check_placement(store.place(dead), set(dead))


def test_a_single_loss_needs_no_move(store: PlanStore) -> None:
    for worker in JOB.shape.workers():
        assert store.place([worker]).moves == ()


def test_two_losses_in_one_stage_are_spread_by_a_move(store: PlanStore) -> None:
    placement = store.place([Worker(0, 1), Worker(1, 1)])
    assert len(placement.moves) == 1
    assert placement.moves[0].worker in placement.seats.values()


def test_workers_keep_their_pipeline_where_they_can(store: PlanStore) -> None:
    placement = store.place([Worker(2, 1)])
    assert sum(place != worker for place, worker in placement.seats.items()) <= 1


def test_what_the_store_does_not_hold_is_named(store: PlanStore) -> None:
    with pytest.raises(NoPlanStored, match="1 to 3 failures, not for 4"):
        store.place([Worker(0, 0), Worker(0, 1), Worker(0, 2), Worker(1, 0)])
    with pytest.raises(NoPlanStored):
        store.place([])
    with pytest.raises(UnknownWorker):
        store.place([Worker(9, 9)])
    with pytest.raises(StageLost):
        store.place([Worker(0, 0), Worker(1, 0), Worker(2, 0)])


def test_a_damaged_store_is_refused(store: PlanStore, tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    store.save(path)
    document = json.loads(path.read_text())
    document["plans"][0]["ops"][5][5] += 10_000
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidPlan, match="breaks"):
        PlanStore.load(path)
    document["plans"][0]["ops"][5] = [1, 2]
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidPlan, match="cannot be read"):
        PlanStore.load(path)
    for text in ("", "[]", "{}", '{"format": "holdfast-plan"}'):
        path.write_text(text)
        with pytest.raises(InvalidPlan, match="Try:"):
            PlanStore.load(path)
    with pytest.raises(InvalidPlan):
        PlanStore.load(tmp_path / "nowhere.json")
