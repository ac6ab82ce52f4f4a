"""Scenarios: the load and the faults of a simulated run, as data.

A file is flat TOML, `about` and any of the fields below; what it leaves out keeps its default. The native side has the
same fields (`native/sim/scenario.h`), and a test keeps the two alike.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path

from holdfast.errors import ConfigError

_SUFFIX = ".toml"


@dataclass(frozen=True)
class Scenario:
    """What happens in a run; the seed decides the rest."""

    name: str = "unnamed"
    about: str = ""
    """What it models, in a sentence."""

    # The job.
    min_ranks: int = 2
    max_ranks: int = 5
    """A run draws its number of ranks between the two."""
    num_groups: int = 1
    """More than 1: operations are hierarchical, over so many groups of neighbouring ranks. What was drawn is rounded to
    groups of the same size, at least two ranks each."""
    datagram_bytes: int = 1472
    protection: int = -1
    """0 encrypted, 1 authenticated, 2 neither; -1: encrypted or authenticated, by the seed."""
    packing: int = -1
    """1: elements travel packed, 0: as they are; -1: by the seed."""
    packets_per_key: int = 0
    """Packets until the key changes; 0: the default of the core."""
    receive_buffer_bytes: int = 4 << 20
    """What a rank believes its socket holds, and shares out to its peers as windows."""
    early_bytes_cap: int = 256 << 20
    """Bytes a rank holds before its own calls."""
    note_assembly_bytes: int = 64 << 20
    """Bytes of unfinished notes a rank holds per peer."""
    same_host: bool = False
    """All ranks share a host: no pacing, the receiver's buffer is the only limit."""
    expects_complete: bool = False
    """Nothing in this scenario should cost an element; if something does, that is a violation."""

    # The load.
    num_operations: int = 6
    min_elements: int = 1
    max_elements: int = 8000
    format: int = -1
    """1 float32, 2 float64, 3 bfloat16, 4 float16; -1: by the seed, operation by operation."""
    exact_ratio: float = 0.3
    """Share of operations by exact delivery; the others are bounded."""
    sum_ratio: float = 0.3
    """Share of operations that want the sum; the others want the mean."""
    deterministic_ratio: float = 0.2
    """Share of runs that sum in rank order."""
    repaired_ratio: float = 0.5
    """Share of runs in which lost results are sent again, until t_c_ms of silence."""
    deadline_ms: float = 60
    """Of a bounded operation."""
    exact_deadline_ms: float = 4000
    t_c_ms: float = 10
    """What a stage usually takes, for the early close."""
    early_wait_ratio: float = 0.5
    credit: int = 0
    """Senders a rank hears at once; 0: all."""
    duty_limit_ms: float = 2000
    """After this much silence a rank forgets an operation it never called."""
    step_ms: float = 5
    """Mean time between a rank's calls; less than an operation takes: several are in flight."""
    call_skew_ms: float = 1
    """How much ranks differ in when they call."""
    owner_bonus: float = 0
    """Added to the gradient of whoever sums it, so that favouring the owner shows."""
    rank_bias: float = 0
    """Times the rank, added to its gradients."""
    num_notes: int = 3
    max_note_bytes: int = 20000
    note_deadline_ms: float = 4000
    limited_ratio: float = 0
    """Of bounded calls that are to end after some part of their deadline, drawn for each rank."""
    announce_ratio: float = 0
    """Share of bounded calls that announce how long their stages took the last time (the sample that t_C follows)."""
    narrow_behind_ratio: float = 0
    """Of bounded calls in float32: how much of all that it has to carry a path lacks before it counts as behind and sends
    sixteen bits; 0: none does."""
    later_credit: int = -1
    """The credit that all ranks hand out from operation `later_credit_from` on; -1: it stays."""
    later_credit_from: int = 0

    # Every link, all the time.
    rate_gbps: float = 10
    """Of a host's uplink."""
    port_rate_gbps: float = 10
    """Of the switch port towards a host."""
    port_queue_bytes: int = 1 << 20
    """What the port holds; the rest is dropped."""
    socket_queue_bytes: int = 4 << 20
    """What a host's socket holds while the host does not run."""
    delay_us: float = 50
    """One way."""
    stalls_per_second: float = 0
    """Per directed pair: a stall holds back all that is sent during it."""
    stall_scale_ms: float = 1
    stall_shape: float = 1.5
    """A stall's length is Pareto distributed."""
    loss_ratio: float = 0
    """Of every datagram, independently."""
    burst_loss_ratio: float = 0
    """Of datagrams sent while their pair is in its bad state (Gilbert-Elliott, on the clock)."""
    burst_ms: float = 5
    """Mean time in the bad state."""
    calm_ms: float = 100
    """Mean time in the good one."""
    last_packets_loss_ratio: float = 0
    """Of packets that carry the last-percentile mark, ends included."""
    control_loss_ratio: float = 0
    """Of acks, pings and ends."""

    # Exactly the packets that carry one thing, known by their header, from the first call on.
    credit_loss_ratio: float = 0
    """Of packets whose credit is not that of the last one that was let through between the two ranks: a change. Every
    packet carries a credit, so at 1 a rank that changes its own has fallen silent."""
    mark_loss_ratio: float = 0
    """Of data and holes that carry the last-percentile mark; ends are a class of their own."""
    end_loss_ratio: float = 0
    """Of ends."""
    sample_loss_ratio: float = 0
    """Of packets that carry a sample: all of a message whose sender announces one."""
    ack_loss_ratio: float = 0
    """Of acks."""
    carriers_lost_first: int = 0
    """Lose only the first so many carriers of each piece of news: of one change of credit, of the mark, end or sample of
    one message; of acks the first between two ranks. 0: no limit."""

    duplicate_ratio: float = 0
    reorder_ratio: float = 0
    reorder_us: float = 500
    """A reordered datagram is late by up to this."""
    corrupt_ratio: float = 0
    """Of datagrams that arrive with flipped bits."""
    truncate_ratio: float = 0
    replay_ratio: float = 0
    """Of datagrams that somebody sends again later."""
    replay_after_ms: float = 50
    """Mean."""
    forge_ratio: float = 0
    """Datagrams of an attacker without the key, per genuine one."""

    # One rank, from `fault_start_ms` after the job formed, for `fault_ms` (0: for good).
    victim: int = -1
    """Which rank; -1: by the seed."""
    victim_shard_weight: int = -1
    """How much of a bounded bucket the victim sums, where everybody else sums 64; -1: shards are even."""
    fault_start_ms: float = 10
    fault_ms: float = 0
    one_way_loss_ratio: float = 0
    """From the victim to its neighbour, and not back."""
    freeze_ms: float = 0
    """The victim neither receives, sends nor runs its timers."""
    num_freezes: int = 1
    freeze_every_ms: float = 100
    black_hole: bool = False
    """Nothing in or out of the victim."""
    dies: bool = False
    """The victim stops for good."""
    slow_rate_ratio: float = 1
    """The victim's share of the rate, both ways."""
    slow_link_delay_us: float = 0
    """More delay from the victim to its neighbour."""
    clock_jump_ms: float = 0
    """The victim's clock jumps ahead, as after a suspended machine."""
    late_call_ms: float = 0
    """The victim's calls come this much later."""
    calls_until: int = -1
    """The victim calls this many operations and no more; -1: all."""

    def values(self) -> dict[str, object]:
        """The fields the native simulator knows."""
        return {name: _TYPES[name](value) for name, value in asdict(self).items() if _TYPES[name] is not str}


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
_TYPES = {field.name: _KINDS[str(field.type)] for field in fields(Scenario)}


def shipped_scenarios() -> list[str]:
    """Names that `load_scenario` knows without a file."""
    folder = files("holdfast.sim") / "scenarios"
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def load_scenario(name_or_path: str) -> Scenario:
    """A shipped scenario by name, or a file."""
    if name_or_path in shipped_scenarios():
        text = (files("holdfast.sim") / "scenarios" / (name_or_path + _SUFFIX)).read_text()
        return parse_scenario(text, name_or_path)
    path = Path(name_or_path)
    try:
        return parse_scenario(path.read_text(), path.stem)
    except OSError as error:
        known = ", ".join(shipped_scenarios())
        raise ConfigError(f"no scenario {name_or_path!r}: {error}", what_to_try=f"one of {known}, or a file") from error


def parse_scenario(text: str, name: str) -> Scenario:
    """Checks every key and value; an unknown or ill-typed one is named."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"scenario {name!r} is not TOML: {error}", what_to_try="compare a shipped scenario"
        ) from error
    types = {name: kind for name, kind in _TYPES.items() if name != "name"}
    unknown = sorted(set(document) - set(types))
    if unknown:
        raise ConfigError(
            f"scenario {name!r} has unknown keys: {', '.join(unknown)}",
            what_to_try="the fields of holdfast.sim.Scenario",
        )
    values = {key: _checked(name, key, value, types[key]) for key, value in document.items()}
    scenario = Scenario(name=name, **values)  # type: ignore[arg-type]  # each value was checked against its field
    _check_ranges(scenario)
    return scenario


def _checked(name: str, key: str, value: object, wanted: type) -> object:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise ConfigError(
            f"scenario {name!r}: {key} = {value!r} is not a {wanted.__name__}", what_to_try="the field's documentation"
        )
    return value


def _check_ranges(scenario: Scenario) -> None:
    def require(holds: bool, what: str) -> None:
        if not holds:
            raise ConfigError(f"scenario {scenario.name!r}: {what}", what_to_try="the field's documentation")

    require(1 <= scenario.min_ranks <= scenario.max_ranks <= 64, "ranks must be between 1 and 64, the least first")
    require(1 <= scenario.num_groups <= 32, "num_groups must be between 1 and 32: at least two of 64 ranks each")
    require(1 <= scenario.min_elements <= scenario.max_elements, "elements must be at least 1, the least first")
    require(scenario.datagram_bytes >= 256, "a datagram needs at least 256 bytes")
    require(scenario.rate_gbps > 0 and scenario.port_rate_gbps > 0, "rates must be positive")
    require(-1 <= scenario.protection <= 2, "protection is -1, 0, 1 or 2")
    require(-1 <= scenario.packing <= 1, "packing is -1, 0 or 1")
    require(0 <= scenario.credit <= 255 and -1 <= scenario.later_credit <= 255, "a credit is at most 255")
    require(scenario.later_credit_from >= 0, "later_credit_from is the number of an operation")
    require(scenario.carriers_lost_first >= 0, "carriers_lost_first is a number of packets")
    require(-1 <= scenario.format <= 4 and scenario.format != 0, "format is -1, 1, 2, 3 or 4")
    for field in fields(Scenario):
        value = getattr(scenario, field.name)
        if field.name.endswith("_ratio"):
            require(0 <= value <= 1, f"{field.name} must be between 0 and 1")
        elif field.name.endswith(("_ms", "_us", "_bytes", "_second")):
            require(value >= 0, f"{field.name} must not be negative")
    damaged = scenario.corrupt_ratio + scenario.truncate_ratio + scenario.forge_ratio + scenario.replay_ratio
    require(scenario.protection != 2 or damaged == 0, "nothing protects an insecure link against damage or forgery")
