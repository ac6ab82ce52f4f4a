"""Faults are files, and the seed decides what they leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BrokenLabFile
from holdfast.lab.fault import kinds, load_faults, shipped_faults


def test_every_kind_of_fault_is_shipped() -> None:
    used = {fault.kind for name in shipped_faults() for fault in load_faults(name).faults(4, 0)}
    assert used == set(kinds())


def test_the_seed_decides_host_and_moment() -> None:
    flapping = load_faults("flapping-link")
    assert flapping.faults(4, 1) == flapping.faults(4, 1)
    moments = {fault.at_s for seed in range(20) for fault in flapping.faults(4, seed)[:1]}
    assert len(moments) == 20
    assert all(moment is not None and 5.0 <= moment <= 6.0 for moment in moments)
    killed = {load_faults("kill-one").faults(4, seed)[0].host for seed in range(40)}
    assert killed == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("kind='bite'\nhost=0\nat_s=1", "kind is 'bite'"),
        ("kind='kill'\nhost=0", "exactly one of at_step and at_s"),
        ("kind='kill'\nhost=0\nat_s=1\nat_step=1", "exactly one of at_step and at_s"),
        ("kind='kill'\nhost=0\nat_s=1\nfor_s=1", "death lasts"),
        ("kind='stop'\nhost=0\nat_s=-1", "not negative"),
        ("kind='stop'\nhost=0\nat_step=1\njitter_s=1", "jitter_s goes with at_s"),
        ("kind='slow_nic'\nhost=0\nat_s=1", "needs a ratio"),
        ("kind='freeze'\nhost=0\nat_s=1\nratio=2", "takes no ratio"),
        ("kind='stop'\nhost=7\nat_s=1", "no host 7 among 4"),
        ("kind='stop'\nat_s=1", "host is missing"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, table: str, complaint: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f"models = 'x'\n[[faults]]\n{table}")
    with pytest.raises(BrokenLabFile, match=complaint):
        load_faults(str(file)).faults(4, 0)


@pytest.mark.parametrize(
    "text", ["models = 'x'", "[[faults]]\nkind='kill'\nhost=0\nat_s=1", "models='x'\nfaults=[]\nmore=1"]
)
def test_a_file_needs_prose_and_faults_and_nothing_else(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(BrokenLabFile):
        load_faults(str(file))
