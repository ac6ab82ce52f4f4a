"""Profiles are files; each says what it models; what they promise follows from what they set."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BrokenLabFile
from holdfast.lab.profile import load_profile, promised, shipped_profiles

NAMES = {
    "clean", "shared-1.5", "shared-3", "tail-3", "lossy-0.1", "lossy-1", "bursty-1", "incast", "straggler", "stalls",
    "wan", "edge",
}  # fmt: skip


def test_the_shipped_names_are_those_of_the_specification() -> None:
    assert set(shipped_profiles()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("num_hosts", [1, 2, 4, 8])
def test_every_profile_fits_any_number_of_hosts(name: str, num_hosts: int) -> None:
    profile = load_profile(name)
    conditions = profile.conditions(num_hosts)
    assert len(conditions.ports) == num_hosts
    assert len(conditions.paths) == num_hosts * (num_hosts - 1)
    assert max(port.uplink_bits_per_s for port in conditions.ports) <= 1e9 / num_hosts
    assert len(profile.models) > 40
    assert promised(profile.promise)


def test_shared_clouds_take_the_same_capacity_in_different_bursts() -> None:
    taken, lengths = set(), set()
    for name in ("shared-1.5", "shared-3"):
        port = load_profile(name).conditions(4).ports[0]
        taken.add(round(port.cross_traffic_share * port.cross_traffic.share, 9))
        lengths.add((port.cross_traffic_share, port.cross_traffic.on_ms))
    assert len(taken) == 1
    assert len(lengths) == 2


@pytest.mark.parametrize(
    ("name", "share"), [("lossy-0.1", 0.001), ("lossy-1", 0.01), ("bursty-1", 0.01), ("wan", 0.01)]
)
def test_promised_loss_is_the_loss_that_is_set(name: str, share: float) -> None:
    profile = load_profile(name)
    for path in profile.conditions(4).paths.values():
        assert path.loss_ratio + path.burst_loss_ratio * path.bursts.share * (
            path.burst_loss_ratio > 0
        ) == pytest.approx(share)
    assert profile.promise.loss_ratio == share


def test_the_straggler_is_one_host_and_the_seed_chooses_it() -> None:
    profile = load_profile("straggler")
    chosen = set()
    for seed in range(40):
        ports = profile.conditions(4, bits_per_s=100e6, seed=seed).ports
        slow = [index for index, port in enumerate(ports) if port.uplink_bits_per_s < 100e6]
        assert len(slow) == 1
        assert slow == profile.different_hosts(4, seed)
        assert ports[slow[0]].uplink_bits_per_s == ports[slow[0]].downlink_bits_per_s == 25e6
        assert profile.conditions(4, bits_per_s=100e6, seed=seed).ports == ports
        chosen.update(slow)
    assert chosen == {0, 1, 2, 3}


def test_one_hosts_network_stalls_for_50_to_500_ms_every_two_seconds() -> None:
    profile = load_profile("stalls")
    ports = profile.conditions(4, seed=3).ports
    (frozen,) = [port for port in ports if port.frozen]
    freezes = frozen.freezes
    assert freezes.lengths == "uniform"
    assert freezes.on_ms * (1 - freezes.spread_ratio) == pytest.approx(50, abs=0.1)
    assert freezes.on_ms * (1 + freezes.spread_ratio) == pytest.approx(500, abs=0.1)
    assert freezes.on_ms + freezes.off_ms == pytest.approx(2000)


def test_lists_are_dealt_to_the_hosts_in_turn() -> None:
    conditions = load_profile("edge").conditions(8, bits_per_s=100e6)
    assert [port.uplink_bits_per_s for port in conditions.ports] == [100e6, 50e6, 25e6, 50e6] * 2
    assert [conditions.paths[sender, 7].delay_ms for sender in range(4)] == [2.0, 5.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models = 'x'\n[path]\nloss = 1", "unknown field 'loss'"),
        ("models = 'x'\n[path]\nloss_ratio = 1.5", "loss_ratio must be in 0 ... 1"),
        ("models = 'x'\n[path]\nloss_ratio = 'many'", "loss_ratio must be float, not 'many'"),
        ("models = 'x'\n[port]\nrate_ratio = 2.0", "rate_ratio is 2.0"),
        ("models = 'x'\n[port]\nfrozen = 1", "frozen must be bool"),
        ("models = 'x'\n[port]\nfreezes = { lengths = 'random' }", "lengths is 'random'"),
        ("models = 'x'\n[port]\nqueue_bytes = []", "empty list"),
        ("models = 'x'\n[[hosts]]\nwhich = 99", "no host 99 among 2"),
        ("models = 'x'\nhosts = 3", "list of tables"),
        ("models = 'x'\nport = 3", "port must be a table"),
        ("models = 'x'\n[promise]\nspeed = 3", "unknown field 'speed'"),
        ("[path]", "`models` is missing"),
        ("models = 'x'\n[ports]", "unknown 'ports'"),
        ("models = ", "is not TOML"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(BrokenLabFile, match=complaint.replace("(", r"\(")):
        load_profile(str(file))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BrokenLabFile, match=r"'clear' is neither .* Try: one of bursty-1, clean"):
        load_profile("clear")
