"""Print how wrong the mean is that a transpose, a server and a ring bring about when packets are lost.

python benchmarks/topology_error.py                       the tables of docs/decisions/0022, about four minutes
python benchmarks/topology_error.py --ranks 8 --seeds 4   a quick look
python benchmarks/topology_error.py --profile clean       shallow queues and nothing but the patterns' own traffic
python benchmarks/topology_error.py --profile shared-3 --ranks 32    where the ring is the worst of all, as in the paper

All patterns meet the same network, second by second: the lab's switch in virtual time, with the same seeds. Nothing is
sent again, what is missing is zero, and all have one deadline: twice what the slowest of them, the server, needs without
loss. The error is that of the results of all ranks, relative to the energy of the true mean.

Two networks: every port with a queue of 32 KiB, under the neighbours of a shared cloud; and independent loss alone, with
queues that never fill. Everybody sends at its line's rate. The paper's own rate rule would not slow them down: it begins
at a round trip of 250 microseconds, and 32 KiB are 10 at its 25 Gbit/s. For a server that is incast at its worst, so
there are also workers that know how many they are, and share the server's line without ever exceeding it, or offer twice
as much as it takes.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from holdfast import _native
from holdfast.lab.conditions import Conditions, Path, Port, native_conditions
from holdfast.lab.profile import load_profile
from holdfast.sim.topologies import PatternName, least_ms, reduce_by

BITS_PER_S = 250e6
SHALLOW_BYTES = 32 << 10
NEVER_FULL_BYTES = 1 << 30
LOSS_RATIO = 0.01


@dataclass(frozen=True)
class Way:
    name: str
    pattern: PatternName
    server_load: float | None = None


TRANSPOSE, SERVER, RING = (Way(name, name) for name in ("transpose", "server", "ring"))
PACED = (Way("server, workers offer 2 lines", "server", 2.0), Way("server, workers share the line", "server", 1.0))


@dataclass(frozen=True)
class Measured:
    """Of one way, one value for each seed."""

    errors: list[float]
    lost_ratios: list[float]
    elapsed_ms: list[float]

    @property
    def error(self) -> float:
        return mean(self.errors)


def shallow_queues(profile: str, num_ranks: int) -> Conditions:
    conditions = load_profile(profile).conditions(num_ranks, bits_per_s=BITS_PER_S)
    return conditions.with_ports(lambda port: dataclasses.replace(port, queue_bytes=SHALLOW_BYTES))


def independent_loss(num_ranks: int) -> Conditions:
    ends = [(a, b) for a in range(num_ranks) for b in range(num_ranks) if a != b]
    port = Port(BITS_PER_S, BITS_PER_S, NEVER_FULL_BYTES)
    return Conditions((port,) * num_ranks, {pair: Path(loss_ratio=LOSS_RATIO, delay_ms=0.1) for pair in ends})


def measure(way: Way, conditions: _native.Conditions, num_elements: int, num_seeds: int) -> Measured:
    num_ranks = len(conditions.ports)
    deadline_ms = 2 * least_ms("server", num_ranks, num_elements, BITS_PER_S)
    measured = Measured([], [], [])
    for seed in range(num_seeds):
        gradients = np.random.default_rng(seed).standard_normal((num_ranks, num_elements), dtype=np.float32)
        reduced = reduce_by(
            way.pattern, gradients, conditions, seed=seed, deadline_ms=deadline_ms, server_load=way.server_load
        )
        measured.errors.append(reduced.relative_error(gradients))
        measured.lost_ratios.append(reduced.lost_ratio)
        measured.elapsed_ms.append(reduced.elapsed_ms)
    return measured


def table(conditions: Conditions, ways: Sequence[Way], num_elements: int, num_seeds: int) -> Mapping[Way, Measured]:
    native = native_conditions(conditions.to_json())
    rows = {}
    for way in ways:
        row = rows[way] = measure(way, native, num_elements, num_seeds)
        spread = stdev(row.errors) if num_seeds > 1 else 0.0
        print(
            f"  N {len(conditions.ports):2d}  {way.name:31s} {row.error:.4f} +- {spread:.4f}   "
            f"{mean(row.lost_ratios):6.2%} lost   {mean(row.elapsed_ms):6.0f} ms",
            flush=True,
        )
    return rows


def verdict(what: str, kept: bool) -> None:
    print(f"    {'kept    ' if kept else 'NOT kept'}  {what}", flush=True)


def no_larger(left: Measured, right: Measured) -> bool:
    """Within two standard errors of the paired difference: the two may be equal."""
    differences = [a - b for a, b in zip(left.errors, right.errors, strict=True)]
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return mean(differences) <= 2 * error


def expected_under_independent_loss(num_ranks: int) -> tuple[float, float]:
    """Of transpose and server alike, and of the ring. A contribution's share in a sum that is known to all."""
    arrives, others = 1 - LOSS_RATIO, (num_ranks - 1) / num_ranks
    direct = LOSS_RATIO * others
    along = mean(arrives**hops for hops in range(num_ranks))
    return direct + others * LOSS_RATIO * (1 - direct), 1 - along**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--elements", type=int, default=1 << 20, help="of the bucket, float32")
    parser.add_argument("--profile", default="shared-1.5", help="the lab's network, with its queues made shallow")
    options = parser.parse_args()
    print(
        f"{options.elements * 4 / 2**20:.0f} MiB of gaussian gradients, {BITS_PER_S / 1e6:.0f} Mbit/s, "
        f"{options.seeds} seeds: relative error, mean and standard deviation"
    )
    print(f"port queues of {SHALLOW_BYTES >> 10} KiB, profile {options.profile}")
    for num_ranks in options.ranks:
        conditions = shallow_queues(options.profile, num_ranks)
        rows = table(conditions, [TRANSPOSE, RING, SERVER, *PACED], options.elements, options.seeds)
        transpose, ring = rows[TRANSPOSE], rows[RING]
        for way in (SERVER, *PACED):
            server = rows[way]
            verdict(f"transpose at most half of: {way.name}", transpose.error <= server.error / 2)
            verdict(f"ring above transpose and: {way.name}", ring.error > max(server.error, transpose.error))
    print(f"independent loss of {LOSS_RATIO:.0%}, queues that never fill")
    for num_ranks in options.ranks:
        rows = table(independent_loss(num_ranks), [TRANSPOSE, SERVER, RING], options.elements, options.seeds)
        direct, along = expected_under_independent_loss(num_ranks)
        print(f"        expected: transpose and server {direct:.4f}, ring {along:.4f}")
        verdict("transpose <= server, within two standard errors", no_larger(rows[TRANSPOSE], rows[SERVER]))
        verdict("server < ring", rows[SERVER].error < rows[RING].error)


if __name__ == "__main__":
    main()
