"""Schedules are files; C1 and C2 are those of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BrokenLabFile
from holdfast.lab.profile import load_profile
from holdfast.lab.schedule import load_schedule, shipped_schedules

# (latency in ms, bandwidth in Gbit/s) by epoch, from the tables of the flexible-communication paper.
C1 = [(1, 25)] * 12 + [(1, 1)] * 12 + [(50, 1)] * 12 + [(50, 25)] * 14
STAIRS = [(1, 25), (2, 20), (4, 15), (8, 10), (16, 5), (32, 1)]
C2 = [pair for pair in [*STAIRS, *reversed(STAIRS)] for _ in range(4)] + [(1, 25)] * 2


@pytest.mark.parametrize(("name", "epochs"), [("c1", C1), ("c2", C2)])
def test_the_papers_schedules(name: str, epochs: list[tuple[int, int]]) -> None:
    schedule = load_schedule(name)
    assert schedule.clock == "epoch"
    assert len(epochs) == 50
    for epoch, (latency_ms, gbit_per_s) in enumerate(epochs, start=1):
        phase = schedule.phase(epoch)
        assert phase is not None
        conditions = phase.conditions(load_profile("clean"), 4, 250e6, 0)
        assert {path.delay_ms for path in conditions.paths.values()} == {latency_ms}, epoch
        for port in conditions.ports:
            assert port.uplink_bits_per_s == pytest.approx(250e6 * gbit_per_s / 25), epoch
            assert port.downlink_bits_per_s == port.uplink_bits_per_s


def test_a_phase_keeps_what_it_does_not_change() -> None:
    phase = load_schedule("c1").phase(30)
    assert phase is not None
    conditions = phase.conditions(load_profile("lossy-1"), 2, 100e6, 0)
    assert {path.loss_ratio for path in conditions.paths.values()} == {0.01}


def test_a_phase_may_bring_a_profile_of_its_own() -> None:
    schedule = load_schedule("rush-hour")
    assert schedule.phase(-1) is None
    assert [schedule.next_change(second) for second in (0, 29, 60, 90)] == [30, 30, 90, None]
    phase = schedule.phase(75)
    assert phase is not None
    assert phase.conditions(load_profile("clean"), 2, 1e8, 0) == load_profile("lossy-1").conditions(2, bits_per_s=1e8)


def test_all_shipped_schedules_load() -> None:
    assert {"c1", "c2"} <= set(shipped_schedules())
    for name in shipped_schedules():
        load_schedule(name)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models='x'\nclock='epoch'", "no phases"),
        ("models='x'\nclock='moon'\n[[phases]]\nat=1", "clock is 'moon'"),
        ("models='x'\nclock='step'\n[[phases]]\nat=2\n[[phases]]\nat=2", "in order of `at`"),
        ("models='x'\nclock='step'\n[[phases]]\nat=2\nrate_ratio=0", "rate_ratio is 0"),
        ("models='x'\nclock='step'\n[[phases]]\nat=2\nprofile='nowhere'", "'nowhere' is neither"),
        ("models='x'\nclock='step'\n[[phases]]\ndelay_ms=2", "at is missing"),
        ("clock='step'\n[[phases]]\nat=2", "models is missing"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(BrokenLabFile, match=complaint):
        load_schedule(str(file))
