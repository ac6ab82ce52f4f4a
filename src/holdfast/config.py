"""What can be set, what it costs, and where each value came from.

A value is taken from the first of: an argument, a TOML file (`HOLDFAST_CONFIG`, else `holdfast.toml` in the working
directory), the environment (`HOLDFAST_` and the field's name in capitals), the default. `holdfast config` prints the
resolved values with their origin. Nothing here has to be set.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import ConfigError

ProtectionName = Literal["encrypted", "authenticated", "insecure"]
WireName = Literal["float32", "bf16", "fp16"]
LateWireName = Literal["bf16", "float32"]
RoundingName = Literal["stochastic", "feedback"]
RateRuleName = Literal["delay", "model"]
HadamardName = Literal["auto", "off", "on"]
HierarchyName = Literal["off", "auto"]
PackingName = Literal["auto", "off", "on"]
OverBudgetName = Literal["skip", "halt"]
EstimateName = Literal["unbiased", "zero_fill"]


@dataclass(frozen=True)
class Config:
    """Every setting of Holdfast."""

    deadline_ms: float | None = None
    """Bound of one all-reduce in milliseconds, both stages together, whatever its size. Default: none given, so it is
    measured: the first operations run exactly, and the 95th percentile of what a stage of the largest bucket took
    becomes the bound of a stage (t_B), in proportion to their bytes for smaller ones. Cost of a low value: what arrives
    later counts as lost; of a high one: a stalled peer holds every step that long."""

    deadline_floor_ms: float = 20.0
    """A measured bound is never below this, in milliseconds. Default 20: below it the scheduler decides, not the net."""

    warmup_operations: int = 20
    """Operations on the largest bucket that run by exact delivery to measure the bound. Default 20, as in the paper.
    Cost: these, and the smaller ones between them, wait for the slowest rank."""

    exact_deadline_ms: float = 60_000.0
    """Bound of exact operations and of state exchange, in milliseconds. Default 60,000; then an error names the peers."""

    early_wait_least_ratio: float = 0.01
    """Lower limit of x: the share of a stage's usual time (t_C) that must pass in silence, with the last percentile of
    every sender in, before the stage ends. x itself starts at 0.1 and follows what arrives after the close. Default
    0.01. Cost of a low value: stragglers' last packets are lost now and then."""

    early_wait_most_ratio: float = 0.5
    """Upper limit of x. Default 0.5, as in the paper. Cost of a high value: every loss is waited for that much longer."""

    early_wait_floor_ms: float = 5.0
    """A silence shorter than this never ends a stage, in milliseconds. Default 5: a sender that its scheduler puts aside
    for a moment is silent too, and its last packets are not lost. Cost of a high value: every loss is waited for that
    long (a quarter of it where every sender has said that all was sent)."""

    repair_grace_ratio: float = 1.0
    """How much longer a silence among the results may last while those that the network lost are sent again, as a share
    of the stage's usual time (t_C, or 20 ms if that is less); within the bound in any case. Default 1. 0: what is lost is lost, and only seen to by
    the comparison of replicas. Cost: an operation that loses results waits about a round trip for them."""

    credit: int = 0
    """Most senders that a rank hears at once in a stage (incast). Default 0: no limit of yours; how many it is within
    the limit follows from the loss that more of them cause. Cost of 1: more rounds on a fast network."""

    uneven_shards: bool = True
    """Give a rank whose network is persistently slow a smaller shard to sum, agreed by all ranks. Default true. Must be
    the same on every rank. No effect with two ranks, with more than 64, nor with `deterministic`. Cost: a small exact
    operation after every 16 bounded ones, and a rank that hears no more than half of all ranks (itself included) in an
    operation counts it as lost: the others may divide otherwise."""

    hierarchy: int | HierarchyName = "off"
    """In how many groups of neighbouring ranks an all-reduce is hierarchical: summed within each group, then between the
    groups. Default `off`: all ranks at once, unless those of a host sum in `shared_memory`. `auto`: by host where all hosts hold the same number of ranks, more than
    one, and else, from 16 ranks on, so that there are fewest rounds. Must be the same on every rank; shards are even
    then. Fewer, larger messages: 64 ranks in 8 groups take 28 rounds instead of 126. Cost: a gradient takes four steps
    instead of two, so twice as much of it is lost on a lossy network, and a rank that dies costs its group a whole
    shard until the job goes on without it."""

    shared_memory: bool = True
    """Let the ranks of a host meet in shared memory instead of over the network, when no `deadline_ms` is given. Default
    true. Must be the same on every rank. With all ranks on one host averages are then exact, in every gradient's own
    dtype (`wire` and `hadamard` have nothing to do), and wait for the slowest rank, at most `exact_deadline_ms`. With
    several hosts that hold the same number of neighbouring ranks, more than one, and `hierarchy` off, each host sums in
    memory, waiting as long, and only the sums go over the network, bounded as ever; where half of the ranks or more are
    missing in a sum, it counts as lost. Else it is not used. Cost: that wait; give a `deadline_ms` to go on without a
    late rank. A few MiB of memory for all ranks of a host, 64 at most."""

    rate_rule: RateRuleName = "model"
    """What the sending rate of a path follows: `model` (default), the largest delivery rate seen (after BBR), or `delay`,
    the round-trip time between two thresholds (as in the paper). Neither is fooled by random loss."""

    deterministic: bool = False
    """Sum contributions in rank order rather than in order of arrival, so that runs repeat bit for bit. Default false.
    Cost: memory for one bucket per open operation."""

    wire: WireName = "float32"
    """How float32 gradients travel: `float32` (default), or in half the bytes as `bf16` or `fp16`; sums are float32 in
    any case. Other dtypes and module buffers travel as they are. Cost of `bf16`: 8 bits of precision, so a step is
    noisier; of `fp16`: 11 bits, but what is beyond 65,504 is clipped, counted and logged. NaN and Inf arrive as
    such."""

    rounding: RoundingName = "stochastic"
    """How `bf16` and `fp16` round: `stochastic` (default), up or down at random without bias, or `feedback`, to
    nearest, with what is left over added to the parameter's next gradient. Cost of `stochastic`: the noise of rounding
    adds up over steps as that of batches does; of `feedback`: 4 bytes of memory per element, and `bf16` takes half as
    long again to round."""

    late_wire: LateWireName = "bf16"
    """How what is late of a float32 gradient travels, because neighbours fill a port or a rank called after the others:
    `bf16` (default), in sixteen bits, rounded up or down at random without bias, so that operations end sooner and less is
    cut off, or `float32`, in all its bits, whatever that costs. While a path is behind, results that nobody has yet are
    rounded for all ranks alike. Each rank decides for what it sends; `Outcome.narrow_ratio` says how much it was. Only where
    packing pays, and never with `deterministic`, a `credit` or another `wire`. Cost: 8 bits of precision for what was late."""

    packing: PackingName = "auto"
    """Send float32 and bf16 gradients in fewer bytes, to the bit the same: neighbouring elements share most of their
    exponents. Saves about a sixth of float32 and a third of bf16, more where gradients are zero. Default `auto`: where
    the network is so slow that the bytes take longer than packing and unpacking, which is measured at attach. Each rank
    decides for what it sends. Cost: a pass over what is sent and one over what is received, in the I/O thread."""

    hadamard: HadamardName = "auto"
    """`on`: float32 gradients travel as the randomised Hadamard transform of blocks that stride over the bucket, so that
    a lost packet takes a little of many elements instead of all of a few, and what is left stands for the whole without
    bias. Default `auto`: off at first, on when the network drops more than 2 % of all gradient entries, off again when
    it was below 0.5 % for some 50 operations, as all ranks agree. Must be the same on every rank; with `feedback` rounding
    `auto` is `off`, and `on` an error. Cost of `on`: two passes over each bucket, each about as long as copying it; a NaN
    or Inf makes the 1,024 elements of its block non-finite. Of `auto`: a small exact operation after every 16 bounded
    ones, the one of `uneven_shards`; a rank that misses the agreement loses its operations until the next one."""

    estimate: EstimateName = "unbiased"
    """What stands for contributions that did not arrive: `unbiased` (default), the mean of those that did, or `zero_fill`,
    nothing, as in the paper, which shrinks a gradient with every loss. Must be the same on every rank."""

    loss_feedback: bool = False
    """Add what does not count of a float32 gradient in its average, because it was lost or late, to the parameter's next
    gradient; with the `unbiased` estimate those that stood for it take back as much. Default false: with that estimate
    training was not better for it, and with AdamW a little worse. Must be the same on every rank. It was better where one rank lost nine tenths of data
    that no other has, and with SGD under `zero_fill`. No effect with `hierarchy`. Cost: a copy of every bucket, and 4
    bytes of memory per element once something is lost."""

    compare_replicas: bool = True
    """Compare fingerprints of parameters, buffers and optimizer state between ranks, a slice after every step, and fetch
    what differs before the next one. Default true. Must be the same on every rank. Cost: reading a sixteenth of the state
    per step, and some hundred bytes. False: only `synchronize()` makes replicas equal."""

    loss_budget: float = 0.25
    """How much a step may lose of the contributions of those that take part, as a share. Default 0.25: with a tenth lost
    training is as accurate as without, from a fifth to a third on it takes more steps (MLT). 1: any loss will do."""

    over_budget: OverBudgetName = "skip"
    """What a step that lost more does: `skip` (default) leaves out its update, on all ranks alike; `halt` raises
    `LossBudgetExceeded` out of `optimizer.step()`, after the snapshot given to `attach`."""

    most_skipped_steps: int = 20
    """So many updates in a row may be left out before training halts after all. Default 20."""

    protection: ProtectionName = "encrypted"
    """`encrypted` (default), `authenticated` (payload readable, nothing forged; about half the cost) or `insecure`
    (loopback only)."""

    key_file: str | None = None
    """File with the job key: 64 hexadecimal digits. Default: none; rank 0 draws a key and sends it through the torch
    Store, which is plain TCP. Give a file where others can read that traffic."""

    packets_per_key: int = 1 << 23
    """Datagrams sealed before the next key is derived. Default 2^23, the most AES-GCM should do. Tests lower it."""

    interface: str | None = None
    """Network interface or own address to use. Default: the one the kernel routes to the master through, printed."""

    port: int = 0
    """UDP port; rank k of a host uses port + k. Default 0: any free port. Set it where a firewall needs a known range."""

    datagram_bytes: int | None = None
    """UDP payload per datagram. Default: from the smallest path MTU in the job (1,472 at 1,500; 16,320 on loopback)."""

    segmentation: bool = True
    """Use the kernel's UDP segmentation offload (GSO/GRO) where it has it. Default true. Without it a datagram costs
    about ten times the CPU."""

    receive_buffer_bytes: int = 8 << 20
    """Socket receive buffer asked for, in bytes. Default 8 MiB. The kernel may grant less (`net.core.rmem_max`); the
    shortfall is logged, and peers then keep less in flight."""

    send_buffer_bytes: int = 8 << 20
    """Socket send buffer asked for, in bytes. Default 8 MiB."""

    early_bytes_cap: int = 0
    """Most bytes held of operations this rank has not called yet. Default 0: room for one step, at least
    64 MiB."""

    join_timeout_s: float = 60.0
    """How long to wait for all ranks at attach, in seconds. Default 60; then an error names the missing ranks."""

    heartbeat_ms: float = 250.0
    """An idle path is pinged this often, in milliseconds. Default 250. Cost: four tiny datagrams a second per peer."""

    silence_limit_ms: float = 1_000.0
    """A peer not heard from for this long is dead, in milliseconds. Default 1,000. Heartbeats come from the I/O thread,
    so a busy Python process is not silent."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def hadamard_in_force(self) -> HadamardName:
        """`auto` is `off` where the transform cannot be on."""
        return "off" if self.hadamard == "auto" and self._feeds_rounding_back else self.hadamard

    @property
    def _feeds_rounding_back(self) -> bool:
        return self.wire != "float32" and self.rounding == "feedback"


def _check(config: Config) -> None:
    positive = (
        "deadline_ms",
        "exact_deadline_ms",
        "join_timeout_s",
        "heartbeat_ms",
        "silence_limit_ms",
    )
    for name in positive:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:  # false for NaN too
            raise ConfigError(f"{name} must be above zero and finite, not {value}", what_to_try="leave it out")
    not_negative = (
        "deadline_floor_ms",
        "early_wait_floor_ms",
        "repair_grace_ratio",
        "warmup_operations",
        "most_skipped_steps",
        "receive_buffer_bytes",
        "send_buffer_bytes",
        "early_bytes_cap",
    )
    for name in not_negative:
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} must not be negative, nor infinite: {value}", what_to_try="leave it out")
    choices = {
        "protection": ProtectionName,
        "wire": WireName,
        "late_wire": LateWireName,
        "rounding": RoundingName,
        "rate_rule": RateRuleName,
        "hadamard": HadamardName,
        "packing": PackingName,
        "over_budget": OverBudgetName,
        "estimate": EstimateName,
    }
    for name, names in choices.items():
        if getattr(config, name) not in typing.get_args(names):
            raise ConfigError(
                f"{name} {getattr(config, name)!r} is unknown",
                what_to_try=f"one of {', '.join(typing.get_args(names))}",
            )
    if config.hadamard == "on" and config._feeds_rounding_back:
        raise ConfigError(
            "what rounding leaves over of an encoded gradient cannot be added to the next one, whose signs are others",
            what_to_try='rounding="stochastic" with hadamard="on"',
        )
    if not 0 < config.loss_budget <= 1:
        raise ConfigError(f"loss_budget is {config.loss_budget}, and must be above 0 and at most 1")
    if config.warmup_operations < 1 and config.deadline_ms is None:
        raise ConfigError("with warmup_operations = 0 nothing measures the bound", what_to_try="set deadline_ms")
    if config.silence_limit_ms < 2 * config.heartbeat_ms:
        raise ConfigError(
            f"a silence limit of {config.silence_limit_ms} ms leaves no room for heartbeats every {config.heartbeat_ms} ms",
            what_to_try="a limit of at least two heartbeats",
        )
    if config.hierarchy not in typing.get_args(HierarchyName) and (
        not isinstance(config.hierarchy, int) or config.hierarchy < 2
    ):
        raise ConfigError(
            f"hierarchy is {config.hierarchy!r}, and must be off, auto or a number of groups",
            what_to_try="a number of groups that divides the number of ranks, at least 2",
        )
    if not 0 <= config.credit <= 255:
        raise ConfigError(f"credit is {config.credit}, and must be 0 to 255")
    if not 0 <= config.port <= 65_535:
        raise ConfigError(f"port is {config.port}, and must be 0 to 65,535")
    if not 0 < config.early_wait_least_ratio <= config.early_wait_most_ratio <= 1:
        raise ConfigError(
            f"x cannot stay between {config.early_wait_least_ratio} and {config.early_wait_most_ratio}",
            what_to_try="0 < early_wait_least_ratio <= early_wait_most_ratio <= 1",
        )
    if config.packets_per_key < 1 or config.packets_per_key > 1 << 23:
        raise ConfigError(
            f"packets_per_key is {config.packets_per_key}, and must be 1 to 2^23: AES-GCM is not safe beyond"
        )
    if config.datagram_bytes is not None and not 576 <= config.datagram_bytes <= 16_320:
        raise ConfigError("datagram_bytes must be 576 to 16,320", what_to_try="leave it out; the path MTU decides")


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration and, for every field, where its value came from."""

    config: Config
    origins: Mapping[str, str]


def resolve(arguments: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> ResolvedConfig:
    """Resolves every field: argument, then file, then environment, then default."""
    environment = os.environ if environment is None else environment
    hints = typing.get_type_hints(Config)
    values: dict[str, Any] = {}
    origins: dict[str, str] = dict.fromkeys(hints, "default")

    def take(name: str, value: Any, origin: str) -> None:
        if name not in hints:
            raise ConfigError(f"{origin}: unknown setting {name!r}", what_to_try="`holdfast config` lists all of them")
        values[name] = _convert(value, hints[name], f"{origin}: {name}")
        origins[name] = origin

    for name in hints:
        variable = f"HOLDFAST_{name.upper()}"
        if variable in environment:
            take(name, environment[variable], f"environment {variable}")
    for variable in environment:
        name = variable.removeprefix("HOLDFAST_").lower()
        if variable.startswith("HOLDFAST_") and variable != "HOLDFAST_CONFIG" and name not in hints:
            raise ConfigError(
                f"environment {variable}: unknown setting {name!r}", what_to_try="`holdfast config` lists all of them"
            )
    path = _config_file(environment)
    if path is not None:
        for name, value in _read(path).items():
            take(name, value, f"file {path}")
    for name, value in (arguments or {}).items():
        take(name, value, "argument")
    return ResolvedConfig(Config(**values), origins)


def _config_file(environment: Mapping[str, str]) -> Path | None:
    if "HOLDFAST_CONFIG" in environment:
        return Path(environment["HOLDFAST_CONFIG"])
    path = Path("holdfast.toml")
    return path if path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", what_to_try="check HOLDFAST_CONFIG") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _convert(value: Any, hint: Any, what: str) -> Any:
    """Text (from the environment) or a TOML value to the type of the field."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if type(None) in options and (value is None or value == ""):
        return None
    if any(typing.get_origin(option) is Literal and value in typing.get_args(option) for option in options):
        return value
    target = next(option for option in options if option is not type(None))
    if typing.get_origin(target) is Literal:
        return value
    try:
        if target is bool:
            return (
                value
                if isinstance(value, bool)
                else {"true": True, "1": True, "false": False, "0": False}[value.lower()]
            )
        if isinstance(value, bool) or (target is int and isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return target(value)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{what}: {value!r} is not {_name_of(target)}") from error


def _name_of(target: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(target, str(target))


def field_documentation() -> dict[str, str]:
    """The docstring under every field of `Config`, by name, for `holdfast config`."""
    import ast
    import inspect
    import itertools
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(Config)))
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    texts: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        is_field = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if is_field and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            name = typing.cast(ast.Name, typing.cast(ast.AnnAssign, statement).target).id
            texts[name] = " ".join(str(following.value.value).split())
    assert set(texts) == {field.name for field in dataclasses.fields(Config)}
    return texts
