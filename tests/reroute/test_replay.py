from __future__ import annotations

import json

import pytest

from holdfast.errors import BrokenTrace
from holdfast.reroute import uniform_job
from holdfast.reroute.availability import Trace, load_trace, seeded_trace
from holdfast.reroute.replay import replay

JOB = uniform_job(4, 6, 5)


def test_nothing_happens_in_a_quiet_trace() -> None:
    played = replay(Trace(((0.0, 24), (3600.0, 24)), "quiet"), JOB)
    rates = {run.name: run.mean for run in played.runs}
    assert rates["Holdfast"] == rates["restart"] == rates["drop pipeline"] == 1.0
    assert played.mean_available == 1.0


def test_one_loss_half_way_can_be_counted_by_hand() -> None:
    """A pipeline of six is dropped after half an hour: 5 s to notice, 2.7 s iteration lost, then 5/6."""
    played = replay(Trace(((0.0, 24), (1800.0, 23), (3600.0, 23)), "one"), JOB)
    runs = {run.name: run for run in played.runs}
    assert runs["drop pipeline"].mean == pytest.approx((1800 + (1800 - 7.7) * 5 / 6) / 3600)
    assert runs["Holdfast"].mean == pytest.approx((3600 - 4.2) / 3600)
    # 1800 s is a multiple of the checkpoint interval, so nothing but the restart is lost
    assert runs["restart"].mean == pytest.approx((1800 + (1800 - 180) * 27 / 30) / 3600)


def test_the_shipped_trace_ranks_the_policies() -> None:
    played = replay(load_trace("spot-24"), JOB)
    means = {run.name: run.mean for run in played.runs}
    assert len(means) == 5
    assert max(means, key=lambda name: means[name]) == "Holdfast"
    assert means["Holdfast"] > played.mean_available
    assert all(0 <= mean <= 1 for mean in means.values())


def test_stretches_cover_the_trace_without_gaps() -> None:
    trace = seeded_trace(seed=5)
    for run in replay(trace, JOB, seed=2).runs:
        assert run.stretches[0].begin_s == trace.samples[0][0]
        assert run.stretches[-1].end_s == trace.samples[-1][0]
        for one, other in zip(run.stretches, run.stretches[1:], strict=False):
            assert one.end_s == other.begin_s


def test_the_same_seed_gives_the_same_replay_and_another_one_does_not() -> None:
    trace = seeded_trace(seed=6, num_samples=30)
    assert replay(trace, JOB, seed=1) == replay(trace, JOB, seed=1)
    assert replay(trace, JOB, seed=1).runs[1].mean != replay(trace, JOB, seed=2).runs[1].mean


def test_a_trace_with_more_workers_than_the_job_is_refused() -> None:
    with pytest.raises(BrokenTrace, match="24 workers, the job 12"):
        replay(load_trace("spot-24"), uniform_job(4, 3, 6))


def test_a_trace_that_loses_everybody_ends_in_silence_not_in_an_error() -> None:
    played = replay(Trace(((0.0, 24), (60.0, 0), (600.0, 0)), "dark"), JOB)
    assert all(run.stretches[-1].rate == 0 for run in played.runs)


def test_the_document_is_json() -> None:
    document = json.loads(json.dumps(replay(load_trace("spot-24"), JOB).document()))
    assert document["policies"][0]["name"] == "Holdfast"
    assert all(policy["model"] for policy in document["policies"])
